"""Exact timelines of pipeline schedules, closed forms that rank them and bounds that prove."""
