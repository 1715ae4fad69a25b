#!/bin/sh
echo 'Good morning, Grace!' > greeting.txt
