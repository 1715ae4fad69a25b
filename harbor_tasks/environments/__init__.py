"""Where a trial runs, and the job that runs many of them.

- base.py: the models of trials and jobs, their files, and the contracts of environments and agents
- jobs.py: a job: plan, run in parallel, interrupt, resume
- local.py: the environment on this machine, without a seal
- staging.py: what a trial needs, put in place, and what it leaves, collected
- contained.py, reaper.py: a program with all that it starts, ended together
- evidence.py: did every covered call pass the interceptor
"""
