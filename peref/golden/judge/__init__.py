"""Judging somebody's tensors, function or program.

selection       which cases are asked for, which failures are expected
result          what became of one tensor, and of one refusal or law
causes          failures in the order in which they arise
unexplained     what is known of failures that no trap explains
report          all that was compared and what was not, as one record
judged          tensors held against the golden ones: right or wrong, missing, in another dtype
laws            what must hold whatever the numbers are
refusals        calls that must be refused
declared        the laws and refusals of all encodings
wire            a case as files and lines for another program
process         a program that answers in lines of JSON
runner          somebody's program, asked for each case
function        somebody's function: found, called, and what it returns
isolated        the same in a process of its own
implementation  somebody's function or program on every case
text            what is said of a failure
junit           a report as JUnit's XML
html            a report as one HTML page
diff            two files or folders of tensors
matrix          many reports in one table
start           the start of a function, for somebody to make right
tables          that table in Markdown and HTML
trial           golden cases one at a time, for pytest
rebuild         golden files computed once more
"""
