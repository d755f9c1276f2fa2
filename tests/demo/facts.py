"""Tables of everyday facts, typed in for this project from general knowledge.

Plain strings with one record a line (read by rows) or a word (read by pairs).
"""

# country: capital: continent: language
COUNTRIES = """
Afghanistan:Kabul:Asia:Pashto and Dari
Albania:Tirana:Europe:Albanian
Algeria:Algiers:Africa:Arabic
Angola:Luanda:Africa:Portuguese
Argentina:Buenos Aires:South America:Spanish
Armenia:Yerevan:Asia:Armenian
Australia:Canberra:Oceania:English
Austria:Vienna:Europe:German
Azerbaijan:Baku:Asia:Azerbaijani
Bangladesh:Dhaka:Asia:Bengali
Belarus:Minsk:Europe:Belarusian and Russian
Belgium:Brussels:Europe:Dutch, French and German
Bolivia:Sucre:South America:Spanish
Bosnia and Herzegovina:Sarajevo:Europe:Bosnian, Croatian and Serbian
Botswana:Gaborone:Africa:English and Tswana
Brazil:Brasília:South America:Portuguese
Bulgaria:Sofia:Europe:Bulgarian
Cambodia:Phnom Penh:Asia:Khmer
Cameroon:Yaoundé:Africa:French and English
Canada:Ottawa:North America:English and French
Chile:Santiago:South America:Spanish
China:Beijing:Asia:Chinese
Colombia:Bogotá:South America:Spanish
Costa Rica:San José:North America:Spanish
Croatia:Zagreb:Europe:Croatian
Cuba:Havana:North America:Spanish
Cyprus:Nicosia:Europe:Greek and Turkish
Czechia:Prague:Europe:Czech
Denmark:Copenhagen:Europe:Danish
Ecuador:Quito:South America:Spanish
Egypt:Cairo:Africa:Arabic
Estonia:Tallinn:Europe:Estonian
Ethiopia:Addis Ababa:Africa:Amharic
Finland:Helsinki:Europe:Finnish and Swedish
France:Paris:Europe:French
Georgia:Tbilisi:Asia:Georgian
Germany:Berlin:Europe:German
Ghana:Accra:Africa:English
Greece:Athens:Europe:Greek
Guatemala:Guatemala City:North America:Spanish
Haiti:Port-au-Prince:North America:French and Haitian Creole
Honduras:Tegucigalpa:North America:Spanish
Hungary:Budapest:Europe:Hungarian
Iceland:Reykjavik:Europe:Icelandic
India:New Delhi:Asia:Hindi and English
Indonesia:Jakarta:Asia:Indonesian
Iran:Tehran:Asia:Persian
Iraq:Baghdad:Asia:Arabic and Kurdish
Ireland:Dublin:Europe:English and Irish
Italy:Rome:Europe:Italian
Jamaica:Kingston:North America:English
Japan:Tokyo:Asia:Japanese
Jordan:Amman:Asia:Arabic
Kazakhstan:Astana:Asia:Kazakh and Russian
Kenya:Nairobi:Africa:Swahili and English
Kuwait:Kuwait City:Asia:Arabic
Laos:Vientiane:Asia:Lao
Latvia:Riga:Europe:Latvian
Lebanon:Beirut:Asia:Arabic
Libya:Tripoli:Africa:Arabic
Lithuania:Vilnius:Europe:Lithuanian
Luxembourg:Luxembourg:Europe:Luxembourgish, French and German
Madagascar:Antananarivo:Africa:Malagasy and French
Malaysia:Kuala Lumpur:Asia:Malay
Mali:Bamako:Africa:Bambara
Malta:Valletta:Europe:Maltese and English
Mexico:Mexico City:North America:Spanish
Moldova:Chisinau:Europe:Romanian
Mongolia:Ulaanbaatar:Asia:Mongolian
Morocco:Rabat:Africa:Arabic and Berber
Mozambique:Maputo:Africa:Portuguese
Namibia:Windhoek:Africa:English
Nepal:Kathmandu:Asia:Nepali
the Netherlands:Amsterdam:Europe:Dutch
New Zealand:Wellington:Oceania:English and Maori
Nicaragua:Managua:North America:Spanish
Nigeria:Abuja:Africa:English
North Korea:Pyongyang:Asia:Korean
Norway:Oslo:Europe:Norwegian
Pakistan:Islamabad:Asia:Urdu and English
Panama:Panama City:North America:Spanish
Paraguay:Asunción:South America:Spanish and Guarani
Peru:Lima:South America:Spanish
the Philippines:Manila:Asia:Filipino and English
Poland:Warsaw:Europe:Polish
Portugal:Lisbon:Europe:Portuguese
Qatar:Doha:Asia:Arabic
Romania:Bucharest:Europe:Romanian
Russia:Moscow:Europe:Russian
Rwanda:Kigali:Africa:Kinyarwanda
Saudi Arabia:Riyadh:Asia:Arabic
Scotland:Edinburgh:Europe:English
Senegal:Dakar:Africa:French
Serbia:Belgrade:Europe:Serbian
Singapore:Singapore:Asia:English, Malay, Chinese and Tamil
Slovakia:Bratislava:Europe:Slovak
Slovenia:Ljubljana:Europe:Slovenian
Somalia:Mogadishu:Africa:Somali and Arabic
South Africa:Pretoria:Africa:Zulu, Xhosa, Afrikaans and English
South Korea:Seoul:Asia:Korean
Spain:Madrid:Europe:Spanish
Sri Lanka:Colombo:Asia:Sinhala and Tamil
Sudan:Khartoum:Africa:Arabic
Sweden:Stockholm:Europe:Swedish
Switzerland:Bern:Europe:German, French, Italian and Romansh
Syria:Damascus:Asia:Arabic
Tanzania:Dodoma:Africa:Swahili and English
Thailand:Bangkok:Asia:Thai
Tunisia:Tunis:Africa:Arabic
Turkey:Ankara:Asia:Turkish
Uganda:Kampala:Africa:English and Swahili
Ukraine:Kyiv:Europe:Ukrainian
the United Arab Emirates:Abu Dhabi:Asia:Arabic
the United Kingdom:London:Europe:English
the United States:Washington, D.C.:North America:English
Uruguay:Montevideo:South America:Spanish
Uzbekistan:Tashkent:Asia:Uzbek
Venezuela:Caracas:South America:Spanish
Vietnam:Hanoi:Asia:Vietnamese
Yemen:Sanaa:Asia:Arabic
Zambia:Lusaka:Africa:English
Zimbabwe:Harare:Africa:English, Shona and Ndebele
"""

# animal: sound: legs: young: food: home: class
ANIMALS = """
dog:barks:4:puppy:meat and dog food:in a kennel or with people:mammal
cat:meows:4:kitten:meat, fish and mice:with people:mammal
cow:moos:4:calf:grass and hay:on a farm:mammal
horse:neighs:4:foal:grass, hay and oats:in a stable:mammal
pig:oinks:4:piglet:grain, roots and vegetables:on a farm:mammal
sheep:bleats:4:lamb:grass:on a farm:mammal
goat:bleats:4:kid:grass and leaves:on a farm or in the mountains:mammal
duck:quacks:2:duckling:water plants, seeds and insects:near water:bird
hen:clucks:2:chick:grain, seeds and worms:on a farm:bird
rooster:crows:2:chick:grain, seeds and worms:on a farm:bird
lion:roars:4:cub:meat:in the grasslands of Africa:mammal
tiger:roars:4:cub:meat:in the forests of Asia:mammal
wolf:howls:4:cub:meat:in forests and mountains:mammal
bear:growls:4:cub:fish, berries, honey and meat:in forests and mountains:mammal
elephant:trumpets:4:calf:grass, leaves and fruit:in Africa and Asia:mammal
monkey:chatters:4:infant:fruit, leaves and insects:in warm forests:mammal
mouse:squeaks:4:pup:seeds, grain and fruit:in fields and houses:mammal
frog:croaks:4:tadpole:insects:near ponds and streams:amphibian
bee:buzzes:6:larva:nectar and pollen:in a hive:insect
fly:buzzes:6:maggot:almost anything:almost everywhere:insect
owl:hoots:2:owlet:mice and other small animals:in forests and old buildings:bird
crow:caws:2:chick:seeds, insects and scraps:in trees:bird
snake:hisses:0:hatchling:mice, frogs and eggs:in grass, forests and deserts:reptile
goose:honks:2:gosling:grass and grain:near water:bird
turkey:gobbles:2:poult:grain, seeds and insects:on a farm:bird
donkey:brays:4:foal:grass and hay:on a farm:mammal
rabbit:is very quiet:4:kit:grass, leaves and carrots:in a burrow:mammal
fox:barks and yelps:4:cub:mice, rabbits and berries:in a den:mammal
deer:is mostly quiet:4:fawn:grass, leaves and buds:in the forest:mammal
squirrel:chatters:4:kit:nuts and seeds:in trees:mammal
spider:makes no sound:8:spiderling:insects:in a web:arachnid
ant:makes no sound:6:larva:seeds, sugar and other insects:in an anthill:insect
butterfly:makes no sound:6:caterpillar:nectar:in gardens and meadows:insect
fish:makes no sound:0:fry:water plants, worms and smaller fish:in water:fish
shark:makes no sound:0:pup:fish and seals:in the sea:fish
whale:sings:0:calf:small sea animals and fish:in the sea:mammal
dolphin:clicks and whistles:0:calf:fish:in the sea:mammal
penguin:honks:2:chick:fish:on the cold coasts of the south:bird
chicken:clucks:2:chick:grain, seeds and worms:on a farm:bird
eagle:screams:2:eaglet:fish and small animals:on high cliffs and in tall trees:bird
parrot:talks and squawks:2:chick:seeds, nuts and fruit:in warm forests:bird
kangaroo:is mostly quiet:2:joey:grass and leaves:in Australia:mammal
camel:grunts:4:calf:dry grass and desert plants:in the desert:mammal
giraffe:is mostly quiet:4:calf:leaves of tall trees:in the grasslands of Africa:mammal
zebra:barks:4:foal:grass:in the grasslands of Africa:mammal
crocodile:growls:4:hatchling:fish and other animals:in warm rivers:reptile
turtle:is very quiet:4:hatchling:plants and small water animals:in water and on land:reptile
snail:makes no sound:0:hatchling:leaves:in gardens:mollusc
octopus:makes no sound:0:larva:crabs and fish:in the sea:mollusc
crab:makes no sound:10:larva:small sea animals and plants:on the sea shore:crustacean
bat:squeaks:2:pup:insects and fruit:in caves:mammal
hedgehog:snuffles:4:hoglet:insects, worms and snails:in gardens and hedges:mammal
panda:bleats:4:cub:bamboo:in the mountains of China:mammal
seal:barks:0:pup:fish:on cold coasts:mammal
swan:honks:2:cygnet:water plants:on lakes and rivers:bird
"""

# adjective: opposite
OPPOSITES = """
hot:cold big:small tall:short long:short fast:slow old:young new:old happy:sad light:dark good:bad
up:down left:right open:closed full:empty early:late easy:difficult hard:soft wet:dry rich:poor
strong:weak clean:dirty loud:quiet high:low near:far day:night black:white hello:goodbye yes:no
true:false right:wrong thick:thin wide:narrow deep:shallow heavy:light sweet:sour rough:smooth
brave:afraid kind:cruel alive:dead awake:asleep first:last front:back inside:outside above:below
before:after begin:end start:stop win:lose buy:sell give:take push:pull come:go love:hate laugh:cry
remember:forget arrive:leave ask:answer north:south east:west summer:winter morning:evening
friend:enemy war:peace question:answer man:woman boy:girl king:queen mother:father brother:sister
top:bottom many:few more:less always:never everything:nothing cheap:expensive safe:dangerous
lazy:hard-working polite:rude warm:cool possible:impossible same:different beautiful:ugly
bright:dim sharp:blunt tight:loose simple:complicated ancient:modern public:private real:fake
fresh:stale generous:selfish calm:nervous noisy:quiet on:off in:out over:under with:without
male:female increase:decrease accept:refuse maximum:minimum positive:negative noisy:silent
raw:cooked sick:healthy guilty:innocent wild:tame visible:invisible
"""

# thing: colour
COLOUR_OF = """
sky:blue grass:green snow:white blood:red coal:black banana:yellow lemon:yellow tomato:red
strawberry:red cherry:red carrot:orange pumpkin:orange leaf:green frog:green milk:white
chocolate:brown sun:yellow sea:blue rose:red cloud:white night:black crow:black polar_bear:white
flamingo:pink elephant:grey mouse:grey cucumber:green spinach:green broccoli:green salt:white
sugar:white ink:black plum:purple eggplant:purple lavender:purple fire_truck:red sunflower:yellow
lime:green swan:white penguin:black_and_white zebra:black_and_white panda:black_and_white
gold:yellow silver:grey copper:reddish_brown emerald:green ruby:red sapphire:blue
rust:reddish_brown coffee:brown honey:golden_brown orange:orange peach:orange_and_pink pea:green
stop_sign:red
"""

MIX = """
red:yellow:orange blue:yellow:green red:blue:purple black:white:grey red:white:pink
blue:white:light_blue red:green:brown
"""

# singular: plural
PLURALS = """
mouse:mice child:children foot:feet tooth:teeth goose:geese man:men woman:women person:people
ox:oxen sheep:sheep fish:fish deer:deer leaf:leaves wolf:wolves knife:knives wife:wives life:lives
half:halves shelf:shelves loaf:loaves thief:thieves calf:calves city:cities baby:babies
story:stories lady:ladies country:countries party:parties fly:flies cherry:cherries berry:berries
box:boxes bus:buses glass:glasses dish:dishes watch:watches church:churches fox:foxes
potato:potatoes tomato:tomatoes hero:heroes dog:dogs cat:cats house:houses tree:trees book:books
car:cars day:days boy:boys key:keys toy:toys girl:girls apple:apples bird:birds star:stars
friend:friends school:schools photo:photos piano:pianos cactus:cacti crisis:crises
phenomenon:phenomena peach:peaches brush:brushes family:families enemy:enemies army:armies
horse:horses bridge:bridges table:tables chair:chairs
"""

# verb: past: participle
VERBS = """
go:went:gone be:was_or_were:been have:had:had do:did:done see:saw:seen eat:ate:eaten run:ran:run
come:came:come take:took:taken give:gave:given make:made:made say:said:said get:got:got
know:knew:known think:thought:thought find:found:found tell:told:told become:became:become
leave:left:left feel:felt:felt bring:brought:brought begin:began:begun keep:kept:kept
hold:held:held write:wrote:written stand:stood:stood hear:heard:heard let:let:let mean:meant:meant
set:set:set meet:met:met pay:paid:paid sit:sat:sat speak:spoke:spoken lie:lay:lain lead:led:led
read:read:read grow:grew:grown lose:lost:lost fall:fell:fallen send:sent:sent build:built:built
understand:understood:understood draw:drew:drawn break:broke:broken spend:spent:spent cut:cut:cut
rise:rose:risen drive:drove:driven buy:bought:bought wear:wore:worn choose:chose:chosen
sing:sang:sung swim:swam:swum drink:drank:drunk fly:flew:flown throw:threw:thrown
catch:caught:caught teach:taught:taught sleep:slept:slept sell:sold:sold fight:fought:fought
forget:forgot:forgotten hide:hid:hidden ride:rode:ridden ring:rang:rung shake:shook:shaken
steal:stole:stolen win:won:won bite:bit:bitten blow:blew:blown dig:dug:dug feed:fed:fed
freeze:froze:frozen walk:walked:walked play:played:played look:looked:looked want:wanted:wanted
work:worked:worked call:called:called try:tried:tried ask:asked:asked help:helped:helped
talk:talked:talked stop:stopped:stopped love:loved:loved dance:danced:danced cry:cried:cried
study:studied:studied jump:jumped:jumped open:opened:opened close:closed:closed
learn:learned:learned live:lived:lived cook:cooked:cooked clean:cleaned:cleaned wash:washed:washed
carry:carried:carried smile:smiled:smiled hurry:hurried:hurried
"""

RHYMES = """
cat hat bat mat rat
dog frog log fog
tree bee free sea
moon spoon soon noon
star car far jar
house mouse blouse
cake lake snake make
rain train plane brain
light night bright kite
king ring sing thing
bear hair chair pear
boat goat coat note
ball tall wall fall
day play say way
red bed head bread
fish dish wish
sun fun run bun
book cook look hook
blue shoe two true
bell shell well tell
rose nose toes
sky fly pie high
hand sand land band
time lime rhyme
door floor four more
green queen bean
love dove glove
snow go slow toe
gold cold old told
town crown brown down
heart art part
fire wire tire
stone bone phone alone
flower tower hour power
school cool pool fool
duck truck luck
money honey funny sunny
nice mice ice rice
fox box socks rocks
song long strong
dream cream team stream
"""

# category: members. The first word of a line is the singular, then the plural.
CATEGORIES = """
fruit|fruits|apple banana orange pear cherry strawberry grape lemon peach plum mango pineapple melon
vegetable|vegetables|carrot potato onion cabbage tomato cucumber pea spinach broccoli pumpkin leek
animal|animals|dog cat horse cow lion tiger elephant bear wolf rabbit mouse fox deer monkey giraffe
bird|birds|sparrow eagle owl crow duck penguin parrot swan goose pigeon robin hawk
insect|insects|ant bee butterfly fly beetle mosquito wasp grasshopper moth ladybird
fish|fish|salmon tuna trout shark herring cod carp eel
tree|trees|oak pine birch maple willow beech ash fir palm
flower|flowers|rose tulip daisy lily sunflower violet poppy daffodil orchid
colour|colours|red blue green yellow orange purple pink brown black white grey
tool|tools|hammer saw screwdriver wrench drill axe shovel rake pliers
vehicle|vehicles|car bus train bicycle truck ship boat plane tram motorcycle helicopter
musical instrument|musical instruments|piano guitar violin flute drum trumpet cello harp clarinet
piece of furniture|pieces of furniture|table chair bed sofa desk wardrobe shelf bench
item of clothing|items of clothing|shirt coat hat dress skirt sock shoe scarf sweater glove
sport|sports|football tennis basketball swimming running hockey volleyball golf boxing rugby
drink|drinks|water milk tea coffee juice lemonade cocoa
metal|metals|iron gold silver copper lead tin zinc aluminium nickel
planet|planets|Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune
continent|continents|Africa Antarctica Asia Europe Oceania
ocean|oceans|Pacific Atlantic Indian Arctic Southern
season|seasons|spring summer autumn winter
shape|shapes|circle square triangle rectangle oval star diamond hexagon
job|jobs|teacher doctor nurse farmer baker carpenter pilot cook engineer painter writer
language|languages|English French Spanish German Chinese Arabic Hindi Japanese Italian Russian
country|countries|France Germany Japan Brazil India Canada Egypt Kenya Spain Italy China Mexico
city|cities|London Paris Rome Tokyo Berlin Madrid Cairo Moscow Sydney Delhi Vienna Lisbon
programming language|programming languages|C Python Java Rust Go JavaScript Perl Ruby Zig
part of the body|parts of the body|head arm leg hand foot eye ear nose mouth knee back
room|rooms|kitchen bedroom bathroom cellar attic hall
emotion|emotions|joy sadness anger fear surprise love
board game|board games|chess checkers go backgammon
dessert|desserts|cake pie pudding cookies
weekday|weekdays|Monday Tuesday Wednesday Thursday Friday
weather|kinds of weather|rain snow sunshine wind fog hail
"""

# from biggest to smallest, with the adjectives for both ends
SIZES = """
bigger smaller|blue whale elephant rhinoceros horse lion wolf dog cat rabbit mouse bee ant
faster slower|plane train car horse bicycle duck turtle snail
hotter colder|sun fire oven summer_day spring_day snow
heavier lighter|ship truck car piano table chair book pencil feather
taller shorter|mountain skyscraper tree giraffe man cat
"""

# word: French: Spanish: German
TRANSLATE = """
hello:bonjour:hola:hallo
goodbye:au revoir:adiós:auf Wiedersehen
thank you:merci:gracias:danke
please:s'il vous plaît:por favor:bitte
yes:oui:sí:ja
no:non:no:nein
cat:chat:gato:Katze
dog:chien:perro:Hund
house:maison:casa:Haus
water:eau:agua:Wasser
bread:pain:pan:Brot
friend:ami:amigo:Freund
good morning:bonjour:buenos días:guten Morgen
good night:bonne nuit:buenas noches:gute Nacht
one:un:uno:eins
two:deux:dos:zwei
three:trois:tres:drei
red:rouge:rojo:rot
blue:bleu:azul:blau
book:livre:libro:Buch
sun:soleil:sol:Sonne
moon:lune:luna:Mond
love:amour:amor:Liebe
milk:lait:leche:Milch
apple:pomme:manzana:Apfel
tree:arbre:árbol:Baum
school:école:escuela:Schule
day:jour:día:Tag
night:nuit:noche:Nacht
man:homme:hombre:Mann
woman:femme:mujer:Frau
child:enfant:niño:Kind
cheese:fromage:queso:Käse
green:vert:verde:grün
black:noir:negro:schwarz
white:blanc:blanco:weiß
world:monde:mundo:Welt
city:ville:ciudad:Stadt
sea:mer:mar:Meer
fish:poisson:pez:Fisch
bird:oiseau:pájaro:Vogel
horse:cheval:caballo:Pferd
mother:mère:madre:Mutter
father:père:padre:Vater
flower:fleur:flor:Blume
fire:feu:fuego:Feuer
heart:cœur:corazón:Herz
star:étoile:estrella:Stern
"""

# What a thing is for or made of. thing: use
USES = """
hammer:hit nails
saw:cut wood
knife:cut things
spoon:eat soup
fork:eat food
pen:write
pencil:write and draw
key:open and close locks
umbrella:stay dry in the rain
lamp:make light
bed:sleep
chair:sit
clock:tell the time
phone:talk to people who are far away
broom:sweep the floor
soap:wash
towel:dry yourself
needle:sew
scissors:cut paper and cloth
ladder:reach high places
camera:take pictures
oven:bake bread and cakes
refrigerator:keep food cold
map:find the way
compass:find north
telescope:look at the stars
microscope:see very small things
ruler:measure length
thermometer:measure temperature
scale:measure weight
candle:make light
match:start a fire
computer:calculate, write and play
bridge:cross a river
boat:travel on water
bicycle:ride from place to place
glasses:see better
toothbrush:clean your teeth
mirror:see yourself
calendar:keep track of the days
brush:paint or clean
bucket:carry water
rope:tie things
wallet:carry money
bag:carry things
pillow:rest your head
coat:keep warm
helmet:protect your head
fire extinguisher:put out a fire
calculator:do sums
dictionary:look up words
keyboard:type on a computer
GPU:do many calculations at once
"""

# profession: what they do: place
JOBS = """
teacher:teaches children:a school
doctor:helps sick people:a hospital
nurse:takes care of sick people:a hospital
farmer:grows food and keeps animals:a farm
baker:bakes bread and cakes:a bakery
cook:prepares meals:a kitchen
pilot:flies planes:a plane
sailor:works on ships:a ship
carpenter:builds things from wood:a workshop
firefighter:puts out fires:a fire station
police officer:protects people:a police station
librarian:takes care of books:a library
painter:paints pictures or walls:a studio
writer:writes books:a desk
gardener:takes care of plants:a garden
dentist:takes care of teeth:a dental office
vet:treats sick animals:an animal clinic
judge:decides in court:a court
actor:plays roles:a theatre
musician:plays music:a concert hall
programmer:writes computer programs:an office
scientist:studies how the world works:a laboratory
engineer:designs machines and buildings:an office
butcher:prepares and sells meat:a butcher's shop
tailor:makes clothes:a workshop
mechanic:repairs cars:a garage
astronaut:travels into space:a spaceship
"""

NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh " "twelfth"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November " "December"
).split()
MONTH_DAYS = "31 28 31 30 31 30 31 31 30 31 30 31".split()
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()


def rows(table, sep=":"):
    """Records of a table with one record a line."""
    return [line.split(sep) for line in table.strip().splitlines()]


def pairs(table):
    """Records of a table whose records are words, like `hot:cold`; an underscore is a space."""
    return [[field.replace("_", " ") for field in word.split(":")] for word in table.split()]
