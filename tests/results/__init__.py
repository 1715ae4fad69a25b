"""Tests of transcripts, jobs put together, and reports, on job folders as `run` writes them."""
