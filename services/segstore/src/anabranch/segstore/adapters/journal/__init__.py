"""The journal: all containers' logs of one process in one sequence of files.

layout        names in the directory; format, identity, fences, list of logs
recovery      opening: fence, make durable, scan, chain
files         writing: the present file, rolling to the next, the spare
live          the live files, their contents, and the containers that pin them
journal       the ports `DurableDataLog` and `ContainerLog`: logs, replay, release
view          one container's part of the journal
group_commit  frames to the disk: gather, write, check the fence, notify
ownership     the fence, and the end after an error
local         opening the journal in a local directory
inspection    reading the journal without opening it
mending       repairing a damaged journal
"""
