"""From an eval to Harbor tasks: `build` and `check`, and what is said of a build to everything that comes after it.

In the order of the way:

- build.py: `check` and `build`; with nothing to do they are over before the rest is loaded
- state.py, watches.py: what an earlier build saw and wrote, and what of the project a build depends on
- assemble.py: puts a build together: reads, renders, writes, remembers
- eval_plan.py: what all tasks of an eval share
- interception.py: hook script, handlers and settings; variant.py, codex.py: for another agent program, and Codex's own
- layer.py, memory.py, skills.py: what belongs to the project: skills, plugins, servers, what CLAUDE.md takes in
- own_base.py, runtime.py: the author's Dockerfile and its context, the runtime image, the tag of both
- sealing.py: what `setup` writes when it seals a sandbox
- judging.py, judge_modules.py, judge_prompts.py: what the verifier gets to know
- staging_hooks.py: commands that prepare workspaces, run at build
- render.py, workspace.py: the files of one task, and which of them a case may bring; recorded.py: its recorded calls
- templates.py, template_cost.py: the author's templates and our own
- task_toml.py, names.py: task.toml, and names that are safe everywhere
- plan.py, tree.py: files as data, and those below a folder, by the rules for all that is packed
- conformance.py: our own checks of a task, and Harbor's
- pool.py: work shared by processes
- write.py: writes a build, beside its place first
- manifest.py, manifest_of.py: build.json
- pulled.py: built tasks that came in a bundle
"""
