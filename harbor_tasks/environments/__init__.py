"""Where a trial runs, and the job that runs many of them.

- base.py: the models of trials and jobs, their files, and the contract of an environment
- plan.py: what a job will run, checked before it exists
- jobs.py: a job: trials in parallel, interrupted, gone on with
- local.py: the environment on this machine, without a seal
- staging.py: what a trial needs, put in place, and what it leaves, collected
- variables.py: which variables a trial gets, and references to the caller's
- selftest.py: does the registered hook decide, here, with this policy
- contained.py, reaper.py: a program with all that it starts, ended together
- evidence.py: did every covered call pass the interceptor
- verdict.py: what a verifier wrote, read back
"""
