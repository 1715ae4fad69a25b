"""Where a trial runs, and the job that runs many of them.

- base.py: the models of trials and jobs, their files, and the contract of an environment
- plan.py: what a job will run, checked before it exists
- jobs.py: a job: trials in parallel, interrupted, gone on with
- local.py: the environment on this machine, without a seal
- docker.py: the environment on a container engine: a job's image and network, and that nothing of them stays
- docker_trial.py, docker_container.py: a trial's phases in its container, and the container's life
- docker_line.py, docker_files.py: the line to its first process, archives in and out
- docker_network.py, docker_proxy.py: what it can reach, and the proof
- cleaning.py: removes what killed runs left
- engine.py: finds the engine as the `docker` command does
- trial.py: a trial's phases in order, whatever the environment
- staging.py: what a trial needs, put in place, and what it leaves, collected
- variables.py: which variables a trial gets, and references to the caller's
- selftest.py: does the registered hook decide, here, with this policy
- contained.py, reaper.py: a program with all that it starts, ended together
- evidence.py: did every covered call pass the interceptor
- verdict.py: what a verifier wrote, read back
"""
