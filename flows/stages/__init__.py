"""The stages of the main job: each finds its finished work again, and does what is left.

Nothing here imports Prefect, so that a command does without; the flows execute the same stages.
"""
