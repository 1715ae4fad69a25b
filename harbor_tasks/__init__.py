"""harbor-pack: packs evaluations of coding agents into Harbor tasks with the same tool policy everywhere."""

__version__ = "0.1.0"
