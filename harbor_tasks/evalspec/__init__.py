"""Reads and checks what the author wrote: eval.yaml (`load_eval`) and its cases (`list_cases`, `read_case`).

- reader.py, compose.py, scalars.py, words.py: YAML and JSON, strictly: every value with its line, faults in plain words
- schema.py, fields.py: the tables and keys of eval.yaml, and the types of single keys
- validate.py, keys.py: plain data against these models, and keys that are not known
- rules.py, code.py: what needs more than one key, and Python in eval.yaml
- load.py: an eval with the files that it names; paths.py, mcp.py, envrefs.py: its paths, servers and variables
- dataset.py, casefiles.py, portable.py: cases, their folders, and names that every machine takes
- answers_file.py: adds answers to a case's answers.yaml
- secrets.py, scan.py: what looks like a secret, and a warning of it in case files
"""

from harbor_tasks.evalspec.casefiles import CaseFile
from harbor_tasks.evalspec.dataset import Case, inputs_of, list_cases, read_case
from harbor_tasks.evalspec.envrefs import EnvRef, env_references
from harbor_tasks.evalspec.load import Eval, load_eval
from harbor_tasks.evalspec.reader import Document, load_yaml, parse_yaml
from harbor_tasks.evalspec.rules import network_fault
from harbor_tasks.evalspec.scan import warn_of_secrets
from harbor_tasks.evalspec.schema import EvalSpec
from harbor_tasks.evalspec.validate import dotted

__all__ = [
    "Case",
    "CaseFile",
    "Document",
    "EnvRef",
    "Eval",
    "EvalSpec",
    "dotted",
    "env_references",
    "inputs_of",
    "list_cases",
    "load_eval",
    "load_yaml",
    "network_fault",
    "parse_yaml",
    "read_case",
    "warn_of_secrets",
]
