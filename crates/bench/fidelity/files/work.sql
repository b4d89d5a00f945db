create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
insert into t select i, hex(i * 7919 % 1000), i / 3.0 from n;
create index tb on t(b);
select b, count(*), round(sum(c), 3) from t group by b order by 2 desc, 1 limit 5;
select a, row_number() over (partition by b order by a desc) from t where b like '3_31' limit 5;
select json_group_array(a) from t where a % 997 = 0;
