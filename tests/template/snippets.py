"""Short templates, one a line or string: every filter, test, method, operator and whitespace rule,
with the cases in which both engines must refuse."""

VARS = {
    "s": "Hello World", "u": "Größe ÄÖÜ ñ 你好 🙂", "e": "", "n": None, "t": True, "f": False,
    "i": 7, "z": 0, "neg": -3, "x": 2.5, "big": 123456789012, "huge": 12345678901234567890123,
    "l": [3, 1, 2], "ls": ["b", "a", "C"], "le": [], "nest": [[1, 2], [3, 4]], "sp": "  a b  c ",
    "d": {"a": 1, "b": {"c": [1, 2, {"k": "v"}]}, "items": "own", "x y": 5},
    "q": "it's \"q\" \\ \n\t\x01\x7f\u200b", "ml": "one\ntwo\n\nthree\r\nfour",
    "ms": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None},
           {"role": "user", "content": "there", "n": 2}, {"content": "x"}],
    "fl": [0.1, 1.0, 1e16, 1e15, 123456789.123, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, -0.0,
           3.0e22, 1 / 3],
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 // -2, 7 % 3, -7 % 3, 7 % -3
7 / 2, 6 / 2, 1 / 3
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2, 7.5 % -2, 0.0 // 3, -0.0 // 3
2 ** 10, 2 ** -1, 2 ** 0.5, -2 ** 2, 2 ** 3 ** 2, (-8) ** 3
1 / 0
1 // 0
1 % 0
1.0 / 0
1.0 % 0
0 ** -1
9223372036854775807 - 1
-9223372036854775807
fl[8] * 10, fl[8] * -10
1_000, 0x1F, 0o17, 0b101, 1_0.5, 1e3, 1.5e-3, 2E2, 00
1.
.5
007
1 + 1.0, 1 - 0.5, 2 * 1.5
true + true, true * 3, -true, +false, not true
'a' + 'b', 'a' * 3, 3 * 'a', 'a' * 0, 'a' * -1
'a' + 1
1 + 'a'
'a' - 'b'
[1] + [2, 3], [0] * 3, 2 * [1, 2], (1,) + (2,)
[1] + (2,)
none + 1
nope + 1
1 + nope
nope.x
nope['x']
nope
nope.x is defined
d.nope.x
d.nope
d.nope is defined, d.a is defined, nope is defined
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'a'] ~ nope
1 ~ 2 + 3
1 + 2 ~ 3
'x' ~ 1 + 2
-i, +i, --i, -x, -'a'
-(5)|abs
-5|abs
-i|string|length
2 < 3, 3 < 2, 2 <= 2, 2 >= 3, 2 == 2.0, 2 != 3, true == 1, false == 0, '1' == 1
1 < 2 < 3, 1 < 3 < 2, 3 > 2 > 1, 1 == 1 == 1, 1 < 2 > 1
'a' < 'b', 'a' < 'B', 'ä' > 'z', '' < 'a', 'ab' < 'abc'
[1, 2] < [1, 3], [1] < [1, 0], (1, 2) < (2,), [] == [], [1] == [1.0], (1,) == [1]
'a' < 1
none < 1
none == none, none == false, none == 0, nope == nope, nope == none
nope < 1
d == d, {'a': 1, 'b': 2} == {'b': 2, 'a': 1}, {'a': 1} == {'a': 2}, {} == []
1 in l, 5 in l, 'a' in 'abc', '' in 'abc', 'x' not in 'abc', 'a' in d, 'zz' in d, 'c' in ls
1 in 'abc'
1 in 5
1 in nope, 'a' not in nope
[1] in [[1], 2]
[1] in d
not 1 in l, not (1 in l), 1 not in l
true and 1, 0 and 1, '' or 'x', 'a' or 'b', none or [], 1 and 2 and 3, 0 or '' or none
not 0, not '', not [], not {}, not none, not nope, not 'a', not 0.0
1 if t else 2, 1 if f else 2, 1 if f, (1 if f) is defined
1 if t else 2 if t else 3, 'a' if f else 'b' if f else 'c'
s[0], s[-1], s[100], s[1:4], s[:3], s[3:], s[:-2], s[::-1], s[::2], s[-9:], s[8:2], s[10:2:-3]
u[0], u[2], u[-1], u[-3:], u[::-1], u[2:12], u[::3], u[11:4:-2], u|length
l[0], l[-1], l[5], l[1:], l[::-1], l[:-1], l[-9:], l[::2], l[5:], l[-1:-3:-1], l[:100]
l[1:2:0]
l['a':]
l[nope:]
n[1:]
d[1:]
i[1:]
nope[1:]
(1, 2, 3)[1:], (1,2,3)[0]
range(5), range(1, 5), range(0, 10, 3), range(5)[2], range(5)[1:3], range(10)[::-2], range(5)|list
range(0), range(3, 1), range(5, 0, -2)|list, range(5)|length, 3 in range(5), range(3) == range(0, 3)
range(100000)|length
range(100001)
range(1.5)
range()
range(1, 2, 0)
range(-1)|list
s['a']
s.nope, s.nope is defined, s.strip is defined, l.append is defined, l.index is defined
d.items is defined, d['items'], d['get'] is defined, d.a, d['x y'], d.b.c[2].k, d.b['c'].0
d['nope'], d[1], d[[1]], d[none]
n.x, n['x'], i.x, i['x'], t.x, (1).foo
l.0, l.2, l[true], l[1.0], l['0']
d.get('a'), d.get('q'), d.get('q', 5)
d.get('q', default=5)
d.get()
d.keys(), d.values()|list, d.items()|list, d.items(), d.keys()|list, d.items()|length
d.keys()[0]
{'a': 1}.values(), {'a': 1}.keys() | first, {}.items()
d.pop('a')
d.update({'a': 2})
l.append(1)
l.append(1) or 'x'
l.sort()
l.index(2), l.count(3), [1, 1, 2].count(1), (1, 2).index(2)
l.index(99)
l.nope()
s.nope()
nope()
5()
none()
d.a()
'abc'()
s.upper(), s.lower(), s.title(), s.capitalize(), 'ab'.join(['x', 'y']), ','.join('abc')
','.join([1])
','.join(5)
','.join(nope)
''.join(ms|map(attribute='role'))
s.startswith('He'), s.endswith('ld'), s.startswith(('x', 'H')), s.startswith('l', 2), s.endswith('o', 0, 5), s.startswith('')
s.startswith(1)
s.startswith(nope)
s.startswith()
s.find('o'), s.find('z'), s.rfind('o'), s.find('o', 5), s.find('o', 5, 6), s.index('W'), s.count('l'), s.count(''), s.find(''), s.find('', 20)
s.index('z')
u.find('好'), u.find('Ö'), u.rfind('ñ'), u.count('Ö'), u.index('🙂'), u.find('', 3), u.find('Ö', -10)
s.replace('l', 'L'), s.replace('l', 'L', 1), s.replace('', '-'), ''.replace('', 'x'), 'aaa'.replace('a', 'b', 2), 'ab'.replace('', '-', 1), 'ab'.replace('', '-', 2), 'é'.replace('', '.')
s.replace('a')
s.replace(1, 2)
sp.strip(), sp.lstrip(), sp.rstrip(), sp.split(), sp.split(' '), sp.split(none, 1), sp.rsplit(none, 1), sp.split(' ', 2), sp.rsplit(' ', 2)
'a,b,,c'.split(','), 'a,b,,c'.split(',', 1), 'a,b,,c'.rsplit(',', 1), ''.split(','), ''.split(), ' '.split(), 'abc'.split('bc'), 'aXXbXXc'.rsplit('XX', 1), 'aaa'.rsplit('aa'), 'aaa'.split('aa')
'a b'.split(sep=' ', maxsplit=1)
'abc'.split('')
'abc'.split(1)
'xxabcxx'.strip('x'), 'xyabcyx'.lstrip('xy'), 'abc'.rstrip('bc'), 'äöä'.strip('ä'), 'abc'.strip(''), '\u3000a\xa0'.strip()|length, '\u200ba'.strip()|length, 'x\x1c'.strip()
'abc'.strip(1)
'</think>a</think>b'.split('</think>')[-1].lstrip('\n'), 'x'.split('</think>')[0]
ml.splitlines(), ml.splitlines(true), ''.splitlines(), '\n'.splitlines(), 'a\x85b\u2028c'.splitlines()
'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('='), 'abc'.rpartition('=')
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x')
'12'.isdigit(), 'a'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'AB'.isupper(), 'ab'.islower(), 'Ab'.islower(), '1'.isupper()
'{} {}'.format(1, 'a'), '{0}{1}{0}'.format('a', 'b'), '{x}'.format(x=3), '{{}}'.format()
'{}'.format()
'%s %d %r' % ('a', 5, 'b'), '%s' % 'x', '%.2f' % 3.14159, '%5d|%-5d|%05d' % (1, 2, 3), '%x' % 255, '%%' % ()
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%d' % 'a'
'hello %s' % nope
"they're bill's".title(), "they're bill's"|title, 'foo-bar [baz] (qux) x<y'|title, 'ABC dEF'|title, 'ß'.upper(), 'straße'.title(), 'ΑΣ'.lower(), 'ΑΣ Σ ΣΑ'.lower(), 'ÀÉ'.lower(), 'àé'.upper(), 'дом'|capitalize, 'ǆ'.upper()
s|upper, s|lower, s|title, s|capitalize, 5|upper, none|lower, nope|upper, true|upper
sp|trim, 'xxaxx'|trim('x'), 5|trim, '\u3000a\n'|trim, none|trim, nope|trim
s|length, l|length, d|length, nope|length, ''|length, (1, 2)|count, u|length
5|length
none|length
true|count
l|map('string')|length
l|join, l|join(','), ls|join('-'), 'abc'|join(','), nope|join, d|join(','), ms|join(',', attribute='role'), ms|join(',', 'content'), [1, [2], none]|join('|'), l|join(5), l|map('string')|join('+')
5|join
none|join
l|first, l|last, ''|first, []|first, []|last, 'abc'|first, 'abc'|last, d|first, d|last, nope|first, nope|last, range(3)|last
5|first
l|map('string')|last
l|map('string')|first
l|reverse|list, 'abc'|reverse, l|reverse|first, (1, 2)|reverse|list, d|reverse|list, 'äö'|reverse, l|map('string')|reverse
5|reverse
l|sort, l|sort(reverse=true), ls|sort, ls|sort(case_sensitive=true), ls|sort(true, true), 'bac'|sort, d|sort, ms|selectattr('role', 'defined')|sort(attribute='role')|map(attribute='content')|list, [[2, 'a'], [1, 'b']]|sort(attribute=0), [[2, 'a'], [1, 'b'], [1, 'a']]|sort(attribute='0,1')
[1, 'a']|sort
ms|sort
nope|sort
l|unique|list, [1, 1.0, true, 2, 'a', 'A', 'b']|unique|list, ['a', 'A']|unique(case_sensitive=true)|list, ms|selectattr('role')|unique(attribute='role')|map(attribute='role')|list, nope|unique|list
[[1], [1]]|unique|list
l|max, l|min, ls|max, ls|min, []|max, ms|selectattr('n', 'defined')|max(attribute='n'), [3, 1]|min, nope|min
l|sum, [0.5, 1]|sum, []|sum, l|sum(start=10), ms|selectattr('n', 'defined')|sum(attribute='n'), nest|sum(start=[])
['a']|sum
ms|map(attribute='role')|list, ms|map(attribute='role', default='-')|list, ms|map('length')|list, ls|map('upper')|list, ls|map('replace', 'a', 'z')|list, nope|map('x')|list, nest|map('first')|list, nest|map(attribute=0)|list, nest|map('join', ',')|list, ms|map(attribute='a.b')|map('default', 'u')|list, l|map('float')|map('string')|join(' ')
ms|map|list
ms|map('nosuch')|list
ms|map(attribute='x', foo=1)|list
5|map('string')|list
0|map('string')|list
l|map('string') is string, l|map('string') is iterable, l|map('string') is sequence, l|map('string') is mapping
l|select|list, [0, 1, '', 'a']|select|list, l|select('odd')|list, l|reject('odd')|list, l|select('gt', 1)|list, l|select('>', 1)|list, l|reject('equalto', 2)|list, ls|select('in', ['a'])|list, [0, 1]|reject|list, nope|select|list, l|select('divisibleby', 3)|list
l|select('nosuch')|list
ls|select('odd')|list
ms|selectattr('role', 'equalto', 'user')|list|length, ms|selectattr('role', '==', 'user')|map(attribute='content')|join(','), ms|rejectattr('role', 'eq', 'user')|list|length, ms|selectattr('role')|list|length, ms|rejectattr('role', 'defined')|list, ms|selectattr('content', 'none')|list, ms|selectattr('n', 'defined')|first, ms|rejectattr('content')|list, ms|selectattr('role', 'in', ['user', 'x'])|list|length
ms|selectattr|list
(ms|selectattr('role', 'eq', 'user'))[0] is defined
(ms|selectattr('role', 'eq', 'user')|list)[0].content
d|items|list, d|items|first, nope|items|list, {}|items|list
5|items|list
l|list, 'abc'|list, d|list, (1, 2)|list, nope|list, range(3)|list
5|list
none|list
5|string, x|string, none|string, nope|string, l|string, d|string, t|string, 'a'|string
'5'|int, '5.9'|int, 'x'|int, 'x'|int(3), 5.9|int, -5.9|int, none|int, []|int, true|int, ' 7 '|int, '-7'|int, '+7'|int, '1_000'|int, '0x1f'|int(base=16), '1f'|int(0, 16), '101'|int(base=2), ''|int, '1e3'|int, 'inf'|int, 'nan'|int, '1__0'|int, '_1'|int, '٣'|length
nope|int
nope|float
'5'|float, '5.5'|float, 'x'|float, 'x'|float(1.5), 3|float, none|float, true|float, '1e5'|float, ' 2 '|float, '0x10'|float, '1_0.5'|float, '.5'|float, '5.'|float, '1_'|float, huge|float
n|default('x'), nope|default('x'), nope|default, e|default('x'), e|default('x', true), n|default('x', true), nope|d('y'), f|default(1, boolean=true), d.nope|default([]), nope|default(none)
nope.x|default('x')
s|replace('l', 'L'), s|replace('l', 'L', 1), 5|replace(5, 6), s|replace('World', ''), none|replace('N', 'n'), nope|replace('a', 'b')
s|replace('l')
'<a href="x">\'&</a>'|e, '<'|escape, '<b>'|safe, '<'|e|e, '<'|safe + '<', '<' + '<'|safe, '<'|safe ~ '<', '<'|safe|upper, ['<'|safe], ('<'|safe)|length
d|tojson|safe + '"'
ml|indent, ml|indent(2), ml|indent(2, true), ml|indent(2, blank=true), ml|indent('> '), ml|indent(first=true, width=1), ''|indent, 'a\n'|indent, '\n\n'|indent(2, true, true), 'a'|indent(-2)
5|indent
nope|indent
2.5|round, 3.5|round, 2.675|round(2), 42.55|round(1), 42|round, 42|round(2), 1234|round(-2), 1250|round(-2), 1350|round(-2), -1250|round(-2), 2.5|round(method='floor'), 2.1|round(method='ceil'), 2.123|round(2, 'ceil'), 5|round(0, 'floor'), true|round, -2.5|round, 1e300|round(2), 0.5|round, 1.005|round(2)
2.5|round(0, 'x')
'a'|round
-5|abs, 5|abs, -2.5|abs, (-0.0)|abs, true|abs, (-5)|abs
'a'|abs
d|dictsort|map(attribute=0)|list, {'b': 1, 'A': 2}|dictsort, {'b': 1, 'A': 2}|dictsort(true), {'b': 1, 'A': 2}|dictsort(by='value'), {'b': 1, 'A': 2}|dictsort(false, 'value', true), {'b': 1, 'A': 2}|dictsort(reverse=true)
l|dictsort
d|dictsort(by='x')
'a b, c_d'|wordcount, ''|wordcount
'%s-%s'|format('a', 1), '%d'|format(3)
d|attr('a'), s|attr('nope')
ms|tojson, d|tojson, l|tojson, s|tojson, u|tojson, q|tojson, n|tojson, t|tojson, fl|tojson, huge|tojson, x|tojson, (1, 2)|tojson, {}|tojson, []|tojson, ''|tojson
ms|tojson(indent=2), d|tojson(indent=4), []|tojson(indent=2), {}|tojson(indent=2), [[], {}]|tojson(indent=1), d|tojson(indent=0), d|tojson(indent='--'), 5|tojson(indent=2), d|tojson(indent=none), [1]|tojson(indent=true)
d|tojson(separators=(',', ':')), ms|tojson(separators=[', ', '=']), d|tojson(indent=2, separators=(',', ': ')), ms|tojson(indent=1, separators=(';', ' :'))
u|tojson(ensure_ascii=true), q|tojson(ensure_ascii=true), u|tojson(true), '\x7f\x80\u2028/'|tojson, '\b\f\v\0'|tojson
{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true), {'b': 1, 'a': 2}|tojson(sort_keys=false), {1: 'a', none: 2, true: 3, 1.5: 4}|tojson, {2: 1, 10: 2}|tojson(sort_keys=true)
{1: 1, 'a': 2}|tojson(sort_keys=true)
{(1, 2): 1}|tojson
nope|tojson
[nope]|tojson
d.items()|tojson
range(3)|tojson
namespace()|tojson
ms|map('string')|tojson
d|tojson(separators=5)
d|tojson(foo=1)
d|tojson(1, 2, 3, 4, 5)
fl, fl|join(' '), huge, [huge]
l, ls, d, ms, nest, q, [q], u, [u], [none, true, 1.5, nope], (), (1,), (1, 2), {}, {1: 2}, {'a': (1, 2)}, {none: 1}
['\x00\x1f\x7f\x80\xa0\xad\u200b\u2028\ufeff\ue000\U0001f600é中', "it's", 'say "x"', 'both \' and "', '\\']
1.0, 1e16, 1e15, 123456789012345678.0, 0.1 + 0.2, 1e-7, 100.0, 1e100, 5e-324, 2.0 ** -44, 2.0 ** 60, 1e22, 1e21, -0.0, 1e16 + 2.0
['inf', '-inf', 'Infinity', 'nan']|map('float')|list, ['inf', '-inf', 'nan']|map('float')|list|tojson
5 is number, x is number, t is number, 's' is number, n is none, nope is none, 5 is integer, t is integer, x is float, 5 is float, t is boolean, 1 is boolean, t is true, 1 is true, f is false, 0 is false
s is string, 5 is string, d is mapping, l is mapping, d is sequence, s is sequence, l is sequence, 5 is sequence, nope is sequence, (1,) is sequence, d.items() is sequence, range(3) is sequence
l is iterable, s is iterable, d is iterable, 5 is iterable, none is iterable, nope is iterable, d.items() is iterable
3 is odd, 3 is even, 4 is even, 0 is odd, 2.0 is even, true is odd, -3 is odd
'a' is odd
none is even
9 is divisibleby 3, 9 is divisibleby(4), 0 is divisibleby 3
9 is divisibleby 0
1 is eq 1, 1 is equalto(1), 1 is == 1
1 is ne 2, 1 is lt 2, 1 is le 1, 2 is gt 1, 2 is ge 3, 1 is lessthan 2, 1 is greaterthan 2, 'a' is lt 'b'
1 is lt 'a'
1 is in [1, 2], 'a' is in 'abc', 5 is not in l
none is sameas none, true is sameas true, 1 is sameas true, d is sameas d
'ABC' is upper, 'abc' is lower, 'aBc' is lower, 5 is upper
range is callable, s is callable, nope is callable, namespace is callable, s.upper is callable
'<'|safe is escaped, '<' is escaped
nope is undefined, s is undefined, nope is not defined, s is not string, not s is string, s is not none and true
s is nosuch
s|nosuch
s is defined is defined
s is string or false, 5 is defined and s is string, (5 is number) == true
5 is defined == true
dict(), dict(a=1), dict({'a': 1}, b=2), dict([['a', 1]]), dict(a=1).a, dict(a=[])|tojson
dict(5)
dict([[1]])
dict(1, 2)
namespace(a=1).a, namespace({'a': 2}).a, namespace(), namespace(a=1), namespace(a=1)['a'], namespace().x is defined
namespace(a=1) == namespace(a=1)
raise_exception('bad')
raise_exception()
strftime_now('%Y-%m-%d'), strftime_now('%d %b %Y'), strftime_now('%A %B %-d %j %H:%M:%S %p %I %y %%'), strftime_now('%a, %e %h %D %T %R %F x %U %W %u %w %G %V %C')
strftime_now('%c|%x|%X|%r|%Z|%z|%f|%n|%t|')
strftime_now('')
strftime_now()
'a' 'b' "c"
'\x41\u00e9\U0001f600\101\n\t\\\'\"\a\b\f\v\r\z\é\8'
'\x4'
'\u12'
"a'b" 'c"d'
'it\'s'
(1)
(1,)
()
(1, 2,)
1, 2
1,
[1, 2,]
[,]
{'a': 1,}
{'a' 1}
{'a': 1 'b': 2}
{'a': {'b': {'c': 1}}}.a.b.c, {'a': {'b': 1}}['a']['b'], {1: 'x'}[1], {'a': 1, 'a': 2}
{[1]: 2}
[1, [2, [3]]][1][1][0]
(s)[0], (s|upper)[0:2], s|upper[0]
"a"|upper ~ "b"|upper
1 + 2|string
(1 + 2)|string + 'x'
s.split(' ')[0]|lower
d.b.c|length > 2 and d.a == 1
l|length - 1
- l|length
not s
not not s
a.b.c is defined
'a' if nope is defined else 'b'
1 is
1 |
1 +
* 2
foo bar
(1
1)
[1
{'a': 1
'abc
@
$x
a ! b
a & b
a = 1
==
1 <> 2
true.x, none.x
true = 1
x.
x[1
x(1
x(a=1, 2)
x(a=1, a=2)
range(stop=3)
s.upper(1)
s|upper(1)
s|trim('a', 'b')
s|default(a=1)
l|join(d='x', d='y')
s|join(attribute=1, foo=2)
d|length()
namespace(x=1)|string
d.copy(), l.copy(), d.copy() == d
l.clear() is defined
d.__class__, d.__class__ is defined, s.__len__ is defined, ''.__class__.__mro__
s['upper'](), s['nope'] is defined, d['get']('a'), d['keys']()|list
[s.upper][0](), (s.lower)()
{'f': range}.f(3)|list
range(3)|map('string')|join, range(3)|sum
[1,2,3]|map('string')|reverse|list
u|upper, u|lower, u|title, u|capitalize, u|reverse
loop is defined, loop
self is defined if f else 1
""
''
'' ~ ''
s + '' + e, e + s
s == 'Hello World', s != 'x', s in ['Hello World'], s[0:5] == 'Hello', s[:5] + s[5:] == s
""".strip("\n").split("\n")

TEMPLATES = [
    # white space
    "a\n", "a\n\n", "\n", "", "a\r\nb\r\n", "a\rb", "{{ 1 }}\n", "{{ 1 }}\n\n", "{% if t %}\n", "{#",
    "{% if t %}\nx\n{% endif %}\n", "  {% if t %}\n  x\n  {% endif %}\n  y", "a {% if t %} b {% endif %} c",
    "a\n  {%- if t %} b {%- endif %}\n c", "a {%- if t -%}  b  {%- endif -%} \n c",
    "a\n  {%+ if t %}b{% endif %}\nc", "a\n  {% if t +%}\nb{% endif +%}\nc", "{% if t %}   \nb{% endif %}",
    "  {{ 1 }}\n  {{- 2 }}\n {{ 3 -}}  \n x", "{{+ 1 }}", "{{- 1 -}}", "{{-1}}", "{{ -1 }}", " {{+1}}",
    "a {# c #} b", "  {# c #}\nb", "a{#- c -#} b", "a\n {#+ c +#}\n b", "{##}x", "{#-#} x", "{# {{ 1 }} {% x #}y",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n  a\n  {% endraw %}\nb", "a {%- raw -%} \n b {%- endraw -%} c",
    "  {% raw %} x {% endraw %}", "{% raw -%} \n x{% endraw +%}\ny", "{% raw %}", "{%raw%}a{%endraw%}", "x{% raw %}{% endraw %}y",
    "\n  {% set x = 1 %}  \n{{ x }}", "\t{% if t %}x{% endif %}", "x\x0b{% if t %}y{% endif %}", "\u3000{% if t %}y{% endif %}",
    "\u3000\n\u3000{%- if t %}y{% endif -%}\u3000\n z", "{%if t%}x{%endif%}", "{%-if t-%} x {%-endif-%}",
    "{{ '{{' }} {{ '%}' }} {{ '#}' }}", "{ { x } }", "{", "a { b", "{%", "{{", "{{ 1", "{% if", "}}", "%}", "{{ {'a': {}} }}", "{{ {'a': {'b': 1}}['a'] }}",
    "{{\n1\n}}\n", "{% if\nt\n%}\nx\n{% endif\n%}\ny", "{{ 1 }}{{ 2 }}\n{{ 3 }}", "x {%- endif %}", "é{% if t %}\né{% endif %}ü",
    "{% if t %}\n\n\nx{% endif %}", "{% for i in l %}\n{{ i }}\n{% endfor %}\n", "{%- for i in l %}\n  - {{ i }}\n{%- endfor %}\nend",
    "  {%- set x = 1 -%}  {{ x }}", "{{ 1 -}}\n\n{{- 2 }}", "{% set x %}  a  {% endset %}[{{ x }}]", "{% set x -%}  a  {%- endset %}[{{ x }}]",
    # if
    "{% if f %}a{% elif t %}b{% else %}c{% endif %}", "{% if f %}a{% elif f %}b{% elif t %}d{% else %}c{% endif %}",
    "{% if f %}a{% else %}{% if t %}x{% endif %}{% endif %}", "{% if nope %}a{% endif %}", "{% if nope.x %}a{% endif %}",
    "{% if t: %}x{% endif %}", "{% if 1, 2 %}x{% endif %}", "{% if () %}x{% endif %}", "{% if t %}", "{% endif %}", "{% else %}",
    "{% if t %}a{% else %}b{% else %}c{% endif %}", "{% if t %}a{% else %}b{% elif t %}c{% endif %}", "{% if %}x{% endif %}", "{% if t else %}",
    # for
    "{% for i in l %}{{ i }}{% else %}E{% endfor %}", "{% for i in [] %}{{ i }}{% else %}E{% endfor %}", "{% for i in nope %}x{% else %}E{% endfor %}",
    "{% for i in 5 %}x{% endfor %}", "{% for i in none %}x{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }},{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in nest %}{{ a }}{{ b }}{% endfor %}",
    "{% for (a, b) in nest %}{{ a }}{{ b }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in l %}x{% endfor %}",
    "{% for a, b, c in nest %}x{% endfor %}", "{% for a in nest %}{{ a }}{% endfor %}", "{% for a, in [[1]] %}{{ a }}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {{ loop.previtem }}-{{ loop.nextitem }}|{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ i }}{{ loop.nextitem }};{% endfor %}", "{% for i in l if i > 9 %}x{% else %}E{% endfor %}",
    "{% for i in l if nope.x %}x{% endfor %}", "{% for i in l if i is odd %}{{ i }}{% endfor %}", "{% for m in ms if m.role == 'user' and not loop.first %}{{ m.content }}{% endfor %}",
    "{% for i in l|map('string') %}{{ loop.index }}{{ loop.last }}{{ i }}{% endfor %}", "{% for i in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ i }}{{ loop.revindex }}{% endfor %}",
    "{% for i in l %}{% for j in ls %}{{ i }}{{ j }}{{ loop.index }}{{ loop.last }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}",
    "{% for i in [1] %}{% break %}{% else %}E{% endfor %}", "{% for i in [1] %}{% continue %}{% else %}E{% endfor %}", "{% break %}", "{% continue %}", "{% if t %}{% break %}{% endif %}",
    "{% for i in l %}{% for j in ls %}{% if j == 'a' %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{% endfor %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in l %}{% set x %}{{ i }}{% if i == 1 %}{% continue %}{% endif %}y{% endset %}{{ x }}{% endfor %}", "{% for i in l %}{% else %}{% break %}{% endfor %}",
    "{% for i in l %}{{ i }}{% endfor %}{{ i }}", "{% for s in l %}{{ s }}{% endfor %}{{ s }}", "{% for i in l %}{% set i = i * 2 %}{{ i }}{% endfor %}",
    "{% for loop in l %}x{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for i in range(3)|reverse %}{{ i }}{% endfor %}", "{% for i in l[::-1] %}{{ i }}{{ loop.last }}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for i in (1 if f else [7]) %}{{ i }}{% endfor %}", "{% for i in l or [1] %}{{ i }}{% endfor %}", "{% for i l %}{% endfor %}", "{% for in l %}{% endfor %}", "{% for 1 in l %}{% endfor %}",
    "{% for i in l %}", "{% endfor %}", "{% for a.b in l %}{% endfor %}", "{% for i in l %}{{ loop }}{% endfor %}" if False else "", "{% for i in l %}{{ loop.nope is defined }}{% endfor %}", "{% for i in l %}{{ loop|length }}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = l|select('odd') %}{{ 3 in g }}{{ g|list }}", "{% set g = d.items() %}{{ g|list }}{{ g|list|length }}",
    "{% set ns = namespace(a=1) %}{% for i in l if i >= ns.a %}{{ loop.length }}{% set ns.a = 9 %}{{ i }}{% endfor %}",
    # set
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set (x, y) = [3, 4] %}{{ x }}{{ y }}", "{% set x, y = 1 %}", "{% set x, y = [1] %}", "{% set x = 1, 2 %}{{ x }}", "{% set x, y = 'ab' %}{{ x }}{{ y }}",
    "{% set s = s + '!' %}{{ s }}", "{% set x %}a{{ s }}b{% endset %}{{ x|upper }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}", "{% set x | trim %}  abc {{ i }} {% endset %}[{{ x }}]",
    "{% for i in l %}{% set y = i %}{% endfor %}{{ y is defined }}", "{% set y = 0 %}{% for i in l %}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "{% if t %}{% set y = 3 %}{% endif %}{{ y }}", "{% if f %}{% set s = 3 %}{% endif %}{{ s }}", "{% if f %}{% set y = 3 %}{% endif %}{{ y is defined }}",
    "{% for i in l %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{% endfor %}", "{% for i in l %}{{ s }}{% set s = i %}{{ s }}{% endfor %}{{ s }}", "{% for i in l %}{% if i > 1 %}{% set s = i %}{% endif %}{{ s }}{% endfor %}",
    "{% for i in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "{{ s }}{% set s = 1 %}{{ s }}", "{% set s = 1 %}{{ s }}{% for i in [1] %}{{ s }}{% set s = 2 %}{{ s }}{% endfor %}{{ s }}", "{% for i in l %}{% for j in l %}{{ s is defined }}{% endfor %}{% set s = 1 %}{% endfor %}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = [ns.a] %}{{ ns.b }}{{ ns.a }}", "{% set d.a = 5 %}", "{% set nope.a = 5 %}", "{% set s.a = 5 %}",
    "{% set ns = namespace(found=false) %}{% for m in ms %}{% if m.role == 'assistant' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}", "{% set ns = namespace(a=1) %}{% set ns.a, y = 2, 3 %}{{ ns.a }}{{ y }}", "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set x %}", "{% set %}", "{% set x = %}", "{% set x == 1 %}", "{% set x[0] = 1 %}", "{% set x.y.z = 1 %}", "{% set _ = l.append(4) %}{{ l }}", "{% set x = l %}{% set l = [9] %}{{ x }}{{ l }}",
    "{% set content = ms[0]['content'] + 'x' %}{{ content }}", "{% set x = none %}{{ x }}{{ x is none }}", "{% set tools = [] %}{{ tools }}", "{{ tools }}{{ documents }}{{ tools is defined }}", "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}", "{% if not date_string is defined %}{% set date_string = \"26 Jul 2024\" %}{% endif %}{{ date_string }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1, x=3) }}", "{% macro m() %}{{ s }}{% endmacro %}{% set s = 5 %}{{ m() }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]", "{% macro m() %}a{% endmacro %}{{ m() + 'b' }}{{ m() ~ 'c' }}{{ m()|length }}", "{% macro m() %}{% set y = 1 %}{% endmacro %}{{ m() }}{{ y is defined }}", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{% for i in x %}{{ i }}{% if loop.last %}.{% endif %}{% endfor %}{% endmacro %}{{ m(l) }}", "{% macro m(a, a) %}{% endmacro %}" if False else "",
    "{% set ns = namespace(n=0) %}{% macro inc() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ inc() }}{{ inc() }}{{ ns.n }}", "{% macro m %}x{% endmacro %}", "{% macro m() %}", "{% endmacro %}", "{% macro m(x) %}{{ x() if x is callable else x }}{% endmacro %}{{ m(3) }}", "{% if t %}{% macro m() %}q{% endmacro %}{% endif %}{{ m() }}",
    "{% macro m(l) %}{{ l }}{{ s }}{% set s = 1 %}{{ s }}{% endmacro %}{{ m(2) }}", "{% macro m(caption='x', items=[]) %}{{ caption }}{{ items }}{% endmacro %}{{ m(items=[1]) }}",
    # with, filter blocks, generation
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with s = s + '!' %}{{ s }}{% endwith %}{{ s }}", "{% with a, b = [1, 2] %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter upper|replace('A', 'x') %}abc{% endfilter %}",
    "{% generation %}a{{ s }}{% endgeneration %}", "{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}{% set y = 1 %}{{ y }}{% endgeneration %}{{ y is defined }}", "  {% generation %}\n  a\n  {% endgeneration %}\n b", "{% generation %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    # odds and ends
    "{% foo %}", "{% %}", "{{ }}", "{% 1 %}", "{% if t %}{% endfor %}", "{% for i in l %}{% endif %}", "{% endset %}", "{% if t %}a{% endif x %}", "{% set x = 1 y %}", "{{ 1 2 }}", "{{ s }", "{{ s } }}", "{{ (s }}", "{{ s) }}", "{{ [s) }}", "{% raw %}{% raw %}{% endraw %}",
    "{{ raise_exception('a' ~ s) }}", "{% if f %}{{ raise_exception('x') }}{% endif %}ok", "{{ 1 if t else raise_exception('x') }}", "{{ t or raise_exception('x') }}", "{% for i in [] %}{{ raise_exception('x') }}{% endfor %}ok",
    "{% for m in ms %}{{ ms[loop.index0 - 1].role }}{{ ms[loop.index0 + 1].content }};{% endfor %}", "{% for m in ms[::-1] %}{{ m.content }}{{ loop.index }}{% endfor %}", "{{ (ms|first).content }}{{ ms[0]['role'] }}{{ ms[-1].role is defined }}", "{% if ms[0]['role'] == 'user' %}{% set r = ms[1:] %}{% else %}{% set r = ms %}{% endif %}{{ r|length }}",
    "{{ s, i }}", "{{ s|upper, 1 }}", "{{ 'a' if t }}{{ 'b' if f }}", "{{ [1 if t else 2, 3] }}", "{{ {'a': 1 if t else 2}.a }}", "{{ s[0] if s else 'x' }}", "{% if s is string and s|length > 3 %}y{% endif %}", "{% if l is not string and l is iterable %}y{% endif %}", "{{ ms | tojson | replace('user', 'U') }}",
]


def cases():
    for e in EXPRESSIONS:
        yield "{{ " + e + " }}", VARS
        parts = e.split(", ") if all(e.count(a) == e.count(b) for a, b in ("()", "[]", "{}")) else []
        for p in parts[:1]:
            yield "{% if " + p + " %}y{% else %}n{% endif %}", VARS
            yield "{% set v = " + p + " %}{{ v }}|{{ v|string|length }}", VARS
    for t in TEMPLATES:
        yield t, VARS
        yield "x\n" + t + "\ny", VARS
