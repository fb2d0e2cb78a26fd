"""Measurements. They print figures and judge nothing: machines differ, ratios within one run count."""
