"""Which Bash commands a filter catches: as typed less the data parts, and each simple command on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

PUSH: dict[str, Any] = {"match": "Any push", "patterns": ["Bash"], "input_filters": [r"\bgit\s+push\b"]}
FIRST: dict[str, Any] = {"match": "Any push", "patterns": ["Bash"], "input_filters": [r"^git\s+push\b"]}

# Each runs `git push`; the filter is anchored, so that the simple command itself has to be found.
RUNS_A_PUSH = {
    "plain": "git push",
    "tab and blanks": "git \t  push origin main",
    "after ;": "ls;git push",
    "after &&": "cd repo && git push",
    "after ||": "false || git push",
    "after a pipe": "echo y | git push",
    "after |&": "make |& git push",
    "after &": "sleep 9 & git push",
    "after a newline": "ls\ngit push",
    "after a comment": "ls # it's done\ngit push",
    "in a subshell": "(cd repo; git push)",
    "in a group": "{ git push; }",
    "in if": "if git push; then :; fi",
    "in then": "if true\nthen git push\nfi",
    "in else": "if false; then :; else git push; fi",
    "in for": "for r in a b; do git push $r; done",
    "in while": "while ! git push; do sleep 1; done",
    "in case": "case $1 in a) ls;; b) git push;; esac",
    "in a function": "f() { git push; }; f",
    "in function": "function f { git push; }; f",
    "negated": "! git push",
    "timed": "time -p git push",
    "coprocess": "coproc git push",
    "after an assignment": "GIT_TRACE=1 A='b c' git push",
    "after an array": "a[1]=x git push",
    "after a redirection": ">/dev/null 2>&1 git push",
    "before a redirection": "git push >log 2>&1 </dev/null",
    "redirection in between": "git >log push",
    "descriptor": "git push {fd}>log 3>&1",
    "single quotes": "'git' 'push'",
    "double quotes": '"git" "push"',
    "quotes inside": "g''i\"t\" pu'sh'",
    "backslash": "\\git pu\\sh",
    "line continuation": "git \\\n  push",
    "line continuation in a word": "gi\\\nt pu\\\nsh",
    "ANSI-C quotes": "$'git' $'\\x70ush'",
    "ANSI-C octal": "$'\\147it' push",
    "locale quotes": '$"git" push',
    "path": "/usr/bin/git push",
    "relative path": "../bin/git push",
    "quoted path": "'/usr/bin/git' push",
    "braces": "{git,push,origin}",
    "$IFS": "git${IFS}push",
    "$IFS with more": "git$IFS'push'",
    "empty parameters": "g$@it pu$1sh",
    "env": "env git push",
    "env with options": "env -u A -C dir B=c git push",
    "env -i": "env -i PATH=/bin git push",
    "env -S": "env -S 'git push'",
    "env -S, joined": "env -S'git push'",
    "env -S behind other letters": "env -u A -ivS'B=c git push'",
    "su -c, joined": "su -c'git push' bob",
    "script -c behind other letters": "script -qc'git push' /dev/null",
    "flock -c, joined": "flock lock -c'git push'",
    "nice": "nice -n 5 git push",
    "nice, joined": "nice -n5 git push",
    "nohup": "nohup git push &",
    "timeout": "timeout -k 5 --signal KILL 10s git push",
    "sudo": "sudo -n -u bob git push",
    "sudo --": "sudo -- git push",
    "doas": "doas -u bob git push",
    "xargs": "printf 'origin' | xargs -n1 -I{} git push {}",
    "stdbuf": "stdbuf -oL git push",
    "setsid": "setsid -f git push",
    "exec": "exec -a name git push",
    "command": "command git push",
    "builtin": "builtin command git push",
    "ionice": "ionice -c 3 git push",
    "chroot": "chroot --userspec=a /srv git push",
    "flock": "flock -n /tmp/lock git push",
    "busybox": "busybox sh -c 'git push'",
    "watch": "watch -n 5 'git push'",
    "parallel": "parallel git push {} ::: origin",
    "parallel, quoted": "parallel 'git push {}' ::: origin",
    "find -exec": "find . -name .git -exec git push \\;",
    "find -execdir": "find . -type d -execdir /usr/bin/git push ';'",
    "wrappers in wrappers": "sudo env A=b nice timeout 5 git push",
    "su -c": "su -c 'git push' bob",
    "su --command": "su --command='git push' bob",
    "ssh": "ssh -p 22 host git push",
    "ssh, quoted": "ssh host 'cd repo && git push'",
    "docker exec": "docker exec -i box sh -c 'git push'",
    "kubectl exec": "kubectl -n prod exec pod -- bash -c 'git push'",
    "script -c": "script -qc 'git push' /dev/null",
    "bash -c": "bash -c 'git push'",
    "sh -lc": "sh -lc 'cd repo; git push'",
    "bash with more options": "bash --norc -eu -o pipefail -c 'git push' name",
    "bash -c, escaped": 'bash -c "git \\"push\\""',
    "bash in bash": "bash -c \"sh -c 'git push'\"",
    "eval": "eval git push",
    "eval, quoted": "eval 'git' \"push\"",
    "eval in eval": "eval \"eval 'git push'\"",
    "trap": "trap 'git push' EXIT",
    "alias": "alias p='git push'; p",
    "$( )": "echo $(git push)",
    "$( ) in quotes": 'echo "out: $(git push)"',
    "$( ) with case": "x=$(case a in a) git push;; esac)",
    "$( ) in $( )": "echo $(echo $(git push))",
    "$( ) in an assignment": "out=$(git push 2>&1)",
    "backticks": "echo `git push`",
    "backticks in quotes": 'echo "`git push`"',
    "backticks in backticks": "echo `echo \\`git push\\``",
    "backticks three deep": "echo `echo \\`echo \\\\\\`git push\\\\\\`\\``",
    "$( ) in ${ }": "echo ${x:-$(git push)}",
    "$( ) in quoted ${ }": 'echo "${x:-"$(git push)"}"',
    "process substitution": "diff <(git push) /dev/null",
    "output substitution": "tee >(git push) < f",
    "$( ) in a redirection": "cat < $(git push)",
    "arithmetic before": "echo $((1 << 2)); git push",
    "arithmetic command": "((n = 1 << 2))\ngit push",
    "arithmetic for": "for ((i = 0; i < 2; i++)); do git push; done",
    "subshell in a subshell": "((git push); ls)",
    "heredoc to bash": "bash <<EOF\ngit push\nEOF",
    "quoted heredoc to bash": "bash -s <<'EOF'\nset -e\ngit push\nEOF",
    "heredoc with tabs": "sh <<-'EOF'\n\tgit push\n\tEOF",
    "heredoc to sudo bash": "sudo -u bob bash <<'EOF'\ngit push\nEOF",
    "heredoc to ssh": "ssh host <<'EOF'\ngit push\nEOF",
    "heredoc to docker": "docker exec -i box sh <<'EOF'\ngit push\nEOF",
    "heredoc through a pipe": "cat <<'EOF' | bash\ngit push\nEOF",
    "heredoc through two pipes": "cat <<'EOF' | tee x | sudo sh -s\ngit push\nEOF",
    "heredoc in a group to bash": "{ cat <<'EOF'\ngit push\nEOF\n} | bash",
    "heredoc in a subshell to bash": "(cat <<'EOF'\ngit push\nEOF\n) | bash",
    "heredoc to a subshell with bash": "(bash) <<'EOF'\ngit push\nEOF",
    "heredoc to a loop": "while read -r l; do $l; done <<'EOF'\ngit push\nEOF",
    "heredoc to eval": "eval \"$(cat <<'EOF'\ngit push\nEOF\n)\"",
    "heredoc to bash -c": "bash -c \"$(cat <<'EOF'\ngit push\nEOF\n)\"",
    "heredoc to source": "source <(cat <<'EOF'\ngit push\nEOF\n)",
    "heredoc kept in a variable": "x=$(cat <<'EOF'\ngit push\nEOF\n); eval \"$x\"",
    "heredoc that is saved and run": "cat > go.sh <<'EOF'\ngit push\nEOF\nbash go.sh",
    "heredoc by tee, run": "tee go.sh <<'EOF'\ngit push\nEOF\nchmod +x go.sh && ./go.sh",
    "heredoc on a descriptor": "exec 3<<'EOF'\ngit push\nEOF\nbash <&3",
    "second heredoc": "cat <<'A'; bash <<'B'\nx\nA\ngit push\nB",
    "after a heredoc": "cat <<'EOF'\nx\nEOF\ngit push",
    "in a heredoc's substitution": "cat <<EOF\n$(git push)\nEOF",
    "here-string": "bash <<< 'git push'",
    "echo to bash": "echo 'git push' | bash",
    "echo -e to bash": "echo -e 'ls\\ngit push' | bash",
    "printf to sh": "printf '%s\\n' ls 'git push' | sh",
    "printf escapes": "printf '\\147it push' | sh",
    "global option": "git -C /repo push",
    "global options": "git -C /repo -c a.b=c --git-dir=/x/.git push",
    "global option without value": "git --no-pager -p push",
    "global option, wrapped": "nice git -C /repo push",
    "quoted global option": "git '-C' \"/re po\" push",
    "unbalanced quote after it": "git push\necho \"",
    "unbalanced quote before it": "echo it's\ngit push",
    "heredoc without end": "cat <<'EOF'\ngit push",
    "a lone closing parenthesis": ") git push",
    "braces inside a word": "git pus{h,}",
    "braces with an empty part": "git {,}push",
    "braces and quotes": "{'git',\"push\"}",
    "braces before quotes": "{git,push}''",
    "braces in braces": "{git,{push,x}}",
    "a range of letters": "git pus{h..h}",
    "a substitution of nothing": "g``it pu$()sh",
    "ANSI-C, eight digits": "$'\\U00000067it' push",
    **{f"behind {name}": f"{name} git push" for name in (
        "prlimit --nofile=9", "setarch x86_64 -R", "linux64", "choom -n 5", "runuser -u bob", "pkexec --user bob",
        "sg staff", "eatmydata", "numactl -C 0", "firejail --net=none", "xvfb-run -a", "chronic", "torsocks",
        "proxychains4 -q", "ls | entr -r", "hyperfine", "perf stat -e x", "fd -x", "fd . src -X", "direnv exec .",
        "uv run --with x", "poetry run", "pipenv run", "npm exec --", "npx -y", "docker exec -it box",
        "docker compose exec svc", "docker run --rm -v a:b img", "kubectl -n a exec pod -c b --", "conda run -n env",
        "eval --", "bash -c '\"$@\"' _", "sh -c '$0 $1'", "sh -c '$*' x", "coproc X {", "valgrind -q", "su-exec bob",
    )},
    "git bisect": "git bisect run git push",
    "git rebase": "git rebase -x 'git push' main",
    "git submodule": "git submodule foreach 'git push'",
    "multi-line function, piped": "f() {\ncat <<'EOF'\ngit push\nEOF\n}\nf | bash",
    "multi-line function, saved": "f() {\ncat <<'EOF'\ngit push\nEOF\n}\nf > x.sh && bash x.sh",
    "multi-line function, evaluated": "f() {\ncat <<'EOF'\ngit push\nEOF\n}\neval \"$(f)\"",
    "git rebase --exec=": "git rebase --exec='git push' main",
    "an option of git": "git --attr-source HEAD push",
    "printed for ever": "yes 'git push' | head -1 | sh",
    **{f"behind {name}, too": f"{name} git push" for name in (
        "bundle exec", "docker-compose exec web", "npx cross-env A=b", "dotenv --", "pyenv exec", "pnpm dlx", "uvx",
        "faketime 2020-01-01", "timeout -s KILL 5", "sudo -nu bob", "gdb --args", "screen -dmS s",
    )},
    **{f"saved text, then {run}": f"cat > x.md <<'EOF'\ngit push\nEOF\n{run}" for run in (
        "cat x.md > y.sh; bash y.sh", "sed '' x.md > y; sh y", "tee y.sh < x.md; bash y.sh", "cp x.md y; ./y",
        "mv x.md y.sh && chmod +x y.sh && ./y.sh", "bash *.md", "bash x.*", "ls *.md | xargs bash", 'eval "$(<x.md)"',
        "while read l; do $l; done < x.md", 'mapfile -t a < x.md; "${a[@]}"', "env BASH_ENV=x.md bash -c ls",
    )},
    "an alias of git": "git -c alias.p='!git push' p",
    "an alias of git, kept": "git config alias.p '!git push'",
    "words for xargs": "echo push | xargs git",
    "a here-string for xargs": "xargs git <<< push",
    "a heredoc for xargs": "xargs git <<'EOF'\npush\nEOF",
    "a format of printf": "printf 'git %s' push | bash",
    "a here-string for a loop": "while read -r l; do eval \"$l\"; done <<< 'git push'",
    "$0 of a shell": "bash -c '$0 push' git",
    **{f"heredoc to {name}": f"{name} <<'EOF'\nos.system('''\ngit push\n''')\nEOF" for name in (
        "uv run python -", "poetry run python3.12 -", "pipenv run python", "conda run -n a python -", "npx tsx",
        "tsx", "ts-node", "luajit", "gmake -f -", "make -f -", "just -f -", "ninja -f /dev/stdin", "octave", "guile",
        "nu", "elvish", "xonsh", "yash", "rc", "sg staff", "nix-shell", "sftp host", "lftp", "vagrant ssh",
        "gcloud compute ssh vm", "mosh host", "/bin/ba?h", "/bin/b[a]sh", "$'\\U00000062ash'",
        "kubectl exec -i p -- sh", "cp /bin/bash ./x; ./x", "ln -s /usr/bin/python3 y; ./y", "f() { bash; }; f",
        "docker compose exec a sh",
    )},
    "heredoc in a coprocess": "coproc bash; cat >&\"${COPROC[1]}\" <<'EOF'\ngit push\nEOF",
    "heredoc of another runner's -c": "uv run python -c \"$(cat <<'EOF'\ngit push\nEOF\n)\"",
    **{f"saved heredoc, then {run}": f"cat > a.sh <<'EOF'\ngit push\nEOF\n{run}" for run in (
        "cat a.sh | bash", 'eval "$(cat a.sh)"', "eval \"`cat a.sh`\"", "bash *.sh", "mv a.sh b; bash b",
        "BASH_ENV=a.sh bash -c ls", "sh -c '. ./a.sh'", "xargs -I{} sh -c {} < a.sh", "sudo bash ./a.sh",
    )},
    "saved text, read into a shell": "cat > a.md <<'EOF'\ngit push\nEOF\ncat a.md | bash",
    "saved text, evaluated": "cat > a.md <<'EOF'\ngit push\nEOF\neval \"$(cat a.md)\"",
    "saved text, moved and run": "cat > a.md <<'EOF'\ngit push\nEOF\nmv a.md go.sh; bash go.sh",
    "heredoc by dd, run": "dd of=a.sh <<'EOF'\ngit push\nEOF\nbash a.sh",
    "heredoc by another writer, run": "sponge a.sh <<'EOF'\ngit push\nEOF\nbash a.sh",
}  # fmt: skip


@pytest.mark.parametrize("command", RUNS_A_PUSH.values(), ids=RUNS_A_PUSH)
def test_a_program_is_found_however_it_is_started(command: str, decide: Decide) -> None:
    result = decide([FIRST], "Bash", {"command": command})
    assert (result["decision"], result["handler"]) == ("deny", 0)


SIMPLER = {
    "kubectl": ("kubectl -n prod --context=x delete pod p", r"^kubectl delete"),
    "docker": ("docker --host tcp://h:1 run img", r"^docker run"),
    "npm": ("npm --prefix ./web publish", r"^npm publish"),
    "gh": ("gh -R o/r pr merge 3", r"^gh pr merge"),
    "path of a script": './scripts/su"bm"it.py --now|^\\./scripts/submit\\.py',
    "interpreter and script": "python3 'scripts/submit.py'|^python3 scripts/submit\\.py",
    "python -c": "python3 -c 'import os; os.system(\"git push\")'|git push",
    "python heredoc": "python3 - <<'EOF'\nimport os\nos.system('git push')\nEOF|git push",
    "perl -e": "perl -e 'system \"git push\"'|git push",
    "case": "GIT PUSH|git push",
    "no arguments": ("ls; sudo reboot", r"^reboot$"),
    "no arguments, substituted": ("x=$(/usr/bin/printenv)", r"^printenv$"),
    "a target in quotes": ('echo x > "/etc/pa"sswd', "/etc/passwd"),
    "a source in quotes": ("cat < /etc/pass\\wd", "/etc/passwd"),
    "a target alone": (">> 'prod'.db", r"prod\.db"),
    "an assignment in quotes": ('AWS_PROFILE="prod" aws s3 ls', "AWS_PROFILE=prod"),
    "options after two words": ("gcloud compute instances --zone z delete x", "^gcloud compute instances delete"),
    "options after a subcommand": ("docker compose -f x.yml --project-name p up -d", r"^docker compose up"),
    "option after a first word": ("gh pr -R o/r create", r"^gh pr create"),
    "profile": ("aws s3 --profile p rm s3://b", r"^aws s3 rm"),
    "toolchain": ("cargo +nightly publish", r"^cargo publish"),
    "variable of make": ("make A=1 -j4 deploy", r"^make deploy"),
}


@pytest.mark.parametrize("given", SIMPLER.values(), ids=SIMPLER)
def test_global_options_paths_and_code_of_other_languages_are_searched(given: Any, decide: Decide) -> None:
    command, pattern = given.rsplit("|", 1) if isinstance(given, str) else given
    handler = {"match": "m", "patterns": ["Bash"], "input_filters": [pattern]}
    assert decide([handler], "Bash", {"command": command})["decision"] == "deny"


DATA = {
    "commit message": "git commit -m 'docs: when to git push'",
    "double quotes": 'git commit -m "docs: when to git push"',
    "message with a variable": 'git commit -m "$USER: when to git push"',
    "message with a harmless substitution": 'git commit -m "when to git push, $(date)"',
    "message with quotes": 'git commit -m "don\'t git push" && ls',
    "two messages": "git commit -m 'no' -m 'never git push'",
    "-am": "git commit -am 'never git push'",
    "attached -m": "git commit -m'never git push'",
    "--message": "git commit --message 'never git push'",
    "--message=": "git commit --message='never git push'",
    "whole word quoted": "git commit '--message=never git push'",
    "--body and --title": "gh pr create --title 'git push' --body \"after\ngit push\"",
    "--comment": "bugs close 3 --comment 'fixed by git push'",
    "behind a wrapper": "env A=b git commit -m 'never git push'",
    "beside an interpreter": "git commit -m 'never git push' && python3 -m pytest",
    "in bash -c": "bash -c \"git commit -m 'never git push'\"",
    "after global options": "git -C /repo commit -m 'never git push'",
    "message that names a shell": "git commit -m 'never git push from /bin/sh'",
    "message of a program that a wrapper starts": "sudo -n -u bob git commit -m 'never git push'",
    "heredoc of sudo tee": "sudo tee notes.md <<'EOF'\nnever git push\nEOF",
    "message over lines": "git commit -m 'first\n\nnever git push\n'",
    "quoted heredoc to a file": "cat > notes.md <<'EOF'\nnever git push\nEOF",
    "heredoc quoted with \\": "cat > notes.md <<\\EOF\nnever git push\nEOF",
    'heredoc quoted with "': 'cat > notes.md <<"EOF"\nnever git push\nEOF',
    "heredoc with tabs": "cat <<-'EOF' > notes.md\n\tnever git push\n\tEOF",
    "heredoc to tee": "tee notes.md <<'EOF' >/dev/null\nnever git push\nEOF",
    "heredoc through a pipe": "cat <<'EOF' | grep push | sort\nnever git push\nEOF",
    "heredoc beside an interpreter": "cat > notes.md <<'EOF'\nnever git push\nEOF\npython3 -m pytest",
    "message from a heredoc": "git commit -m \"$(cat <<'EOF'\nfix: it\n\nnever git push (it's forbidden)\nEOF\n)\"",
    "message from a file": "git commit -F - <<'EOF'\nnever git push\nEOF",
    "two heredocs": "cat <<'A' <<'B'\ngit push\nA\ngit push\nB",
    "in a variable": "out=$(git commit -m 'never git push' 2>&1); echo \"$out\"",
    "a name with hyphens": "cat > n.md <<'END-OF-FILE'\nnever git push\nEND-OF-FILE",
    "a name with a dot": "cat > n.md <<'EOF.1'\nnever git push\nEOF.1",
    "the word case": "(pytest -k case) && git commit -m 'never git push'",
    "an arithmetic of lengths": "n=$((${#a[@]}-1)); git commit -m 'never git push'",
    "an arithmetic with a base": "n=$((16#ff)); m=$(( (a << 2) + 1 )); git commit -m 'never git push'",
    "a default in quotes": "x=${1:-'none'}; git commit -m 'never git push'",
    "a tee of errors": "make 2> >(tee err.log >&2); git commit -m 'never git push'",
    "through an edit": "cat <<'EOF' | sed 's/x/y/' > notes.md\nnever git push\nEOF",
    "a module beside tests": "cat > src/a.py <<'EOF'\n# never git push\nEOF\npython3 -m pytest",
    "heredoc in an if": "if true; then cat > n.md <<'EOF'\nnever git push\nEOF\nfi",
    "words of definitions": "git commit -m 'function f() { alias; hash; enable }: never git push'",
    "a script in a heredoc": "cat > notes.md <<'EOF'\nf() { x; }\nalias a=b; never git push\nEOF",
    "in sh -c": "sh -c 'git commit -m \"never git push\"'",
    "quoted -m": "git commit '-m' 'never git push'",
    "image": "docker commit -m 'never git push' box img",
    "heredoc, then an edit": "cat > README.md <<'EOF'\nnever git push\nEOF\nsed -i 's/a/b/' README.md",
    "heredoc, then awk": "cat > README.md <<'EOF'\nnever git push\nEOF\nawk '{print $1, $2}' README.md",
    "heredoc, then read": "cat > n.json <<'EOF'\n\"never git push\"\nEOF\njq . n.json && python3 -m pytest",
    "CRLF": "cat > notes.md <<'EOF'\r\nnever git push\r\nEOF\r\n",
    "a manifest": "kubectl apply -f - <<'EOF'\nnever git push\nEOF",
    "heredoc of another program": "jira issue create -t Bug <<'EOF'\nnever git push\nEOF",
    "heredoc of mail": "mail -s 'about python' bob <<'EOF'\nnever git push\nEOF",
    "a file named like a language": "cat > python <<'EOF'\nnever git push\nEOF",
    "body that names a language": "gh pr create --title python --body 'never git push'",
}


@pytest.mark.parametrize("command", DATA.values(), ids=DATA)
def test_data_of_a_program_is_not_searched(command: str, decide: Decide) -> None:
    assert decide([PUSH], "Bash", {"command": command})["decision"] == "none"


CODE = {
    "substitution in a message": 'git commit -m "done $(git push origin main)"',
    "backticks in a message": 'git commit -m "done `git push origin main`"',
    "nested substitution": 'git commit -m "a $(echo "$(git push)")"',
    "not quoted": "git commit -m git push",
    "unquoted heredoc": "cat <<EOF\ngit push\nEOF",
    "after the heredoc": "cat > notes.md <<'EOF'\nx\nEOF\ngit push",
    "on the heredoc's line": "cat > notes.md <<'EOF' && git push\nx\nEOF",
    "-m of bash": "bash -m 'git push'",
    "-m of a runner": "eval x -m 'git push'",
    "printed -m text": "printf '%s\\n' -m 'git push' | bash",
    "message of an unknown program": "$tool -m 'git push'",
    "quotes that do not end": "git commit -m 'git push",
    "heredoc without its end": "cat > notes.md <<'EOF'\ngit push\n",
    "an end that is not one": "cat > notes.md <<'EOF'\nx\nEOF \ngit push\nEOF\ngit push",
    "shift that looks like a heredoc": "echo $((1<<'E'))\ngit push\nE",
    "index that looks like a heredoc": "a[1<<'E']=5\ngit push\nE",
    "continued operator": "cat <\\\n<X -m '\nX\ngit commit -m ' ; git push ; echo '",
    "odd end of a heredoc": "cat <<$'EOF'\nx\nEOF\ngit push\n$EOF",
    "case pattern in a substitution": 'x="$(case a in a) echo ;; esac; git commit -m \')" ; git push ; echo "\')"',
    "-m of a wrapper": "unshare -m 'git' push",
    "heredoc to sudo's shell": "sudo -s <<'EOF'\ngit push\nEOF",
    "heredoc to sudo's shell of another": "sudo -i -u bob <<'EOF'\ngit push\nEOF",
    "heredoc to a function": "f() { bash; }; f <<'EOF'\ngit push\nEOF",
    "message of a function": "function f { eval \"$2\"; }; f -m 'git push'",
    "heredoc to an alias": "shopt -s expand_aliases; alias cat=bash\ncat <<'EOF'\ngit push\nEOF",
    "heredoc to another program of the name": "hash -p /bin/bash cat; cat <<'EOF'\ngit push\nEOF",
    "printed -m text that is saved and run": "printf '%s\\n' -m 'git push' > f; bash f",
    "heredoc to socat": "socat - EXEC:bash <<'EOF'\ngit push\nEOF",
    "quoted option": "git commit '-x' 'git push'",
    "another option": "git commit --fixup 'git push'",
    "a test that is saved and run": "cat > t.py <<'EOF'\n'''\ngit push\n'''\nEOF\nuv run pytest t.py",
    "a script for tsx": "cat > t.ts <<'EOF'\n`\ngit push\n`\nEOF\nnpx tsx t.ts",
    "mixed ends of lines": "cat <<'EOF'\nx\nEOF\r\nx -m '\nEOF\ngit push\n'",
    "ANSI-C quotes that sh does not have": "sh -c 'git commit -m $'\\''x\\'\\'' ; git push '",
}


@pytest.mark.parametrize("command", CODE.values(), ids=CODE)
def test_what_is_not_surely_data_is_searched(command: str, decide: Decide) -> None:
    assert decide([PUSH], "Bash", {"command": command})["decision"] == "deny"


OTHERS = ["git pull", "git status # pushes later", "echo push | git log", "ls git-push", "git commit -m 'push'", "",
    " ", "#",
          "command -v git push", "git -C push status", "git -c push.default=x status", "git -P show push",
          "gitpush", "git pushd", "git stash push"]  # fmt: skip


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_are_left_alone(command: str, decide: Decide) -> None:
    assert decide([FIRST], "Bash", {"command": command})["decision"] == "none"


def test_filters_search_and_ignore_case(decide: Decide) -> None:
    handler = {"match": "m", "patterns": ["Bash"], "input_filters": ["nothing", "JIRA-CLI"]}
    assert decide([handler], "Bash", {"command": "cd /tmp && ./my-jira-cli list"})["decision"] == "deny"


def test_a_handler_that_names_bash_without_filters_is_skipped_and_said(decide: Decide, hook: Hook) -> None:
    bare = {"match": "All shell", "patterns": ["Bash"]}
    for handler in (bare, {**bare, "input_filters": []}, {**bare, "env_checks": {"A": {"equals": "b"}}}):
        result = decide([handler, PUSH], "Bash", {"command": "git push"})
        assert (result["decision"], result["handler"]) == ("deny", 1)
        assert result["notes"] == ["handler 0 is not enforced: Bash without input_filters"]
    done = hook.write(bare).bash("ls")
    assert done.decision == "none"
    assert "input_filters" in done.stderr
    assert done.log[0]["notes"] == ["handler 0 is not enforced: Bash without input_filters"]


def test_a_glob_that_catches_bash_uses_filters_if_it_has_any(decide: Decide) -> None:
    for patterns in (["*"], ["B*sh"], ["Ba??", "Bash"]):
        glob = {"match": "m", "patterns": patterns}
        assert decide([glob], "Bash", {"command": "ls"})["decision"] == "deny"
        filtered = {**glob, "input_filters": ["^rm"]}
        assert decide([filtered], "Bash", {"command": "ls"})["decision"] == "none"
        assert decide([filtered], "Bash", {"command": "ls; rm x"})["decision"] == "deny"


@pytest.mark.parametrize("command", [None, 5, ["git", "push"], {"a": 1}, True])
def test_a_command_that_is_no_text_is_denied(command: Any, decide: Decide) -> None:
    for given in ({"command": command}, {}):
        assert decide([PUSH], "Bash", given)["decision"] == "deny"


HUGE = {
    "words": "a " * 20_000,
    "commands": "a;" * 20_000,
    "open substitutions": "$(" * 20_000,
    "open parameters": "${" * 20_000,
    "parentheses": "(" * 20_000,
    "quotes": "'a' " * 12_000,
    "backticks": "`a` " * 12_000,
    "wrappers": "env " * 12_000,
    "options": "git " + "-c a " * 12_000,
    "shells": "sh " * 12_000,
    "evals": "eval " * 12_000,
    "nested shells": 'bash -c "' * 500,
    "heredocs": "cat <<E\na\nE\n" * 3_000,
    "messages": "git commit " + "-m 'x' " * 8_000,
    "unbalanced": '"' + "a b c " * 8_000,
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_a_huge_command_is_read_in_time_or_denied(text: str, decide: Decide) -> None:
    result = decide([FIRST], "Bash", {"command": text + "\ngit push"})
    assert result["decision"] == "deny"


LONG = {
    "options": "gcc " + "-I inc/a " * 200 + "-c a.c",
    "JSON": "echo '[" + '{"a":1,"b":2},' * 20 + "{}]' | python3 -m json.tool",
    "numbers": 'echo \'{"ids": [' + "1," * 100 + "1]}' | python3 x.py",
    "a script": "python3 - <<'EOF'\n" + "print('a', x[1], {'a': 1})\n" * 1_000 + "EOF",
    "rows": "psql <<'EOF'\n" + "INSERT INTO t VALUES (1, 'a b', 'c');\n" * 1_500 + "EOF",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_command_without_harm_is_read(text: str, decide: Decide) -> None:
    result = decide([FIRST], "Bash", {"command": text})
    assert result["decision"] == "none", result["reason"]
