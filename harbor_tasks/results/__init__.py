"""What a job came to, from what its trials left.

- collect.py: its trials put together: rewards, faults, the exit code
- thresholds.py: its judges over all trials, and what they must reach
- report.py: tables for a terminal, plain data, one HTML file
- transcript.py, questions.py: what an agent did, and who answered what it asked
- judges.py, judge_files.py: `score`: model judges are asked about a finished job; what it takes of what is left there
- freeze.py: answers of a model become those of the cases
"""
