"""Evaluation: cases, metrics over what a run searched, read and answered, the runner and its reports."""
