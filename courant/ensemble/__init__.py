"""Models of several members, whose predictions are averaged: `num_members` of any model's config.

- `averaged`: the mean of any members
- `anchored`: members that decompose their predictions; so does their mean
- `contributions`: the decomposition of that mean
"""
