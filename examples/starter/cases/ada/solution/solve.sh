#!/bin/sh
# What a right run leaves behind; the agent `oracle` runs it.
echo 'Hyvää huomenta, Ada!' > greeting.txt
