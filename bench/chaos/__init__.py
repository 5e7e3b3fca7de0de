"""Seeded schedules of faults against real servers, solvers and trainings."""
