define(`count', `ifelse($1, 0, , `$1 count(decr($1))')')dnl
count(20)
define(`fib', `ifelse(eval($1 < 2), 1, $1, `eval(fib(decr($1)) + fib(eval($1 - 2)))')')dnl
fib(13)
translit(`hello', `a-y', `b-z') len(`twelve chars')
