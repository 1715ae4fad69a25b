"""Where a trial runs, and the job that runs many of them.

- base.py, records.py: the models of trials and jobs, their files, and the contract of an environment
- sources.py, strangers.py: where the tasks come from, and what those of a bundle may not do here
- plan.py: what a job will run, checked before it exists
- jobs.py: a job: trials in parallel, interrupted, gone on with
- lock.py, signals.py, limit.py, after_hooks.py: does it run, Ctrl-C, what it may cost, the eval's commands after it
- trial.py: a trial's phases in order, whatever the environment
- local.py: the environment on this machine, without a seal
- docker.py: the environment on a container engine: a job's image and network, and that nothing of them stays
- docker_trial.py, docker_container.py: a trial's phases in its container, and the container's life
- docker_line.py, docker_files.py: the line to its first process, archives in and out
- docker_network.py, docker_proxy.py: what it can reach, and the proof
- harbor.py, harbor_process.py, harbor_results.py: the environment of the user's own Harbor: a run of it, what it left
- harbor_server.py, harbor_server_run.py, harbor_api.py: the same by a Harbor server
- harbor_command.py, harbor_kinds.py, harbor_guard.py: its command, its kinds of machines, what bundles may not do to it
- engine.py, gateway.py: finds the engine as the `docker` command does, and this machine as containers reach it
- staging.py, scratch.py: what a trial needs, put in place, and what it leaves, collected; temporary folders
- variables.py: which variables a trial gets, and references to the caller's
- selftest.py: does the registered hook decide, here, with this policy
- scripted.py, judge_model.py: a script in place of the agent's model, and the model of judges
- recordings.py: which recorded calls came to nothing
- contained.py, reaper.py: a program with all that it starts, ended together
- evidence.py: did every covered call pass the interceptor
- verdict.py, costs.py: what a verifier wrote, and what trials spent
- cleaning.py: removes what killed runs left
"""
