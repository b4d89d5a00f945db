declare -A seen
declare -i total=0
mapfile -t lines < words.txt
for line in "${lines[@]}"; do
    word=${line#* }
    seen[${word% *}]=1
    total+=${line%% *}
done
echo "${#seen[@]} $total"
text="The Quick Brown Fox"
[[ $text =~ ([A-Z][a-z]+)\ ([A-Z][a-z]+) ]] && echo "${BASH_REMATCH[2]} ${text,,} ${text//o/0}"
printf '%(%Y-%m-%d)T %q\n' 86400 "a b'c"
echo $((16#ff ** 2)) {a..e}{1..3}
trap 'echo "got USR1"' USR1
kill -USR1 $$
printf -v joined '%s,' "${lines[@]:0:5}"
echo "$joined" > joined.txt
exit 6
