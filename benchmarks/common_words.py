"""Common words of the fourteen languages, which a search leaves out of a query: one list per language.

Articles, prepositions, pronouns, conjunctions, auxiliary verbs, question words and the verbs of a request ("tell me").
They are matched after folding (no case, no accents). Single letters are left out of queries of five words or more only
("I left a note", not "plan A" or "vitamin E"). A word that is
common in one language and a word of content in another is listed if it is much more frequent as the former (German
"die", "man"), and not listed if it is a likely word of a query (French "car", Polish "ten", Turkish "kim", "AI").
        What is
listed is left out only next to other words, and the model reads it. `benchmarks/word_table.py` writes them into the
word table that every platform reads.

Chinese, Japanese and Korean are indexed by pairs of letters; their entries are such pairs.
"""

COMMON_WORDS = {
    "en": """a i about all also am an and any are as at be been being but by can could did didn do does doesn doing
        don each
        every for from get gets getting give go goes going good got had has have having he help her here him his how if
        in into is isn it its just know let like ll look make many me might more most much must my need needs no not now
        of on one only or our out over please re real really said see shall she should so some such take tell than that
        the their them then there these they think this those time to told too up us ve very want wants was wasn way we
        were what when where which while who whom whose why will with would you your""",
    "de": """ab aber alle als also am an auch auf aus bei beim bin bis bist da damit dann das dass dein deine dem den
        denn der des die dies diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er
        es etwas euch euer fur gab geht gibt hab habe haben habt hat hatte hatten hier ich ihm ihn ihr ihre im in ins
        ist ja jede jeder jetzt kann kannst kein keine konnen konnte mal man mehr mein meine meinem meinen meiner mich
        mir mit mochte muss mussen nach nicht nichts noch nun nur ob oder ohne sehr sein seine sich sie sind so soll
        sollte um und uns unser unsere unter vom von vor wann war waren warum was weil welche welchen welcher welches
        wem wen wenn wer werde werden wie wieder wieso will wir wird wo wofur woher wohin womit wurde zu zum zur""",
    "es": """a e o u y al algo algun alguna aqui asi aunque cada como con cual cuales cuando cuanta cuantas cuanto
        cuantos da de
        del desde donde dos el ella ellos en entre era eres es esa ese eso esta estan estar estas este esto estos estoy
        fue ha habia han hasta hay he la las le les lo los mas me mi mis mucho muy nada ni no nos nosotros nuestra
        nuestro o para pero poco por porque puede puedes puedo que quien quiero se ser si sin sobre solo somos son soy
        su sus tambien te tener tengo ti tiene tienen tu tus un una unas uno unos va voy yo ya""",
    "fr": """a y ainsi alors as au aucun aussi autre aux avais avait avec avez avoir avons bien ce ceci cela celle
        celui ces
        cet cette chez ci comme comment dans de depuis des deux dois doit donc dont du elle elles en entre es est et
        etaient etais etait etes etre eu eux fait faire faut il ils je jusqu la le les leur leurs lors lui ma mais me
        meme mes moi moins mon ne ni non nos notre nous on ont ou par pas peu peut peux plus plusieurs pour pourquoi
        pouvez puis qu quand que quel quelle quelles quels qui quoi sa sans se sera ses si son sont sous suis sur ta te
        tes toi ton tous tout toute toutes tres trop tu un une va vers veux vos votre vous""",
    "it": """a e i o ad al alla alle allo anche avere ha hai hanno ho c che chi ci come con cosa cui da dagli dai dal
        dalla
        dalle dei del dell della delle dello degli di dove e ed ecco era erano fa fare fra gia gli il in io la le lei lo
        loro lui ma me mi mia mie mio miei molto ne negli nei nel nell nella nelle nello noi non nostra nostro o ogni
        per perche piu po poi posso puo qual quale quali qualche quando quanta quante quanti quanto quella quello quest
        questa queste questi questo qui se sei senza si siamo sono sta sto su sua sue sugli sui sul sull sulla sulle suo
        suoi te ti tra tu tua tuo tutti tutto un una uno va vi voglio voi vorrei""",
    "nl": """aan al alle als an ben bij daar dat de der deze die dit doe doen dus een en er ga gaan gaat geen geweest
        haar had hadden heb hebben hebt heeft hem hen het hier hij hoe hoeveel hun ik in is ja je jij jou jouw jullie
        kan kun kunnen maar me meer met mij mijn moet moeten na naar niet niets nog nou nu of om omdat onder ons onze
        ook op over te toch toen tot u uit uw van veel voor waar waarom wanneer want waren was wat we wel welk welke
        werd wie wij wil wilde word worden wordt zal ze zei zelf zich zij zijn zo zonder zou""",
    "tr": """acaba ama ancak artik az bana bazi belki ben benden beni benim bir biraz biri birkac biz bizim boyle bu
        buna bunda bundan bunlar bunu bunun burada cok cunku da daha de degil diye dolayi en eger gibi hangi hangisi hem
        hep hepsi her hic icin ile ise iste kac kadar kez ki mi mu mı mü musun miyim nasil ne neden nedir nerede nereden
        nereye niye o olan olarak oldu olur on ona onda ondan onlar onu onun orada oyle pek sen senin siz sizin sonra
        sunu var ve veya ya yani yok zaman""",
    "ar": """ال في من على إلى الى عن مع هذا هذه ذلك تلك التي الذي الذين هو هي هم هن أنا نحن أنت أنتم كان كانت يكون ليس
        لا ما ماذا متى أين كيف لماذا هل كم أي أو ثم قد لقد لم لن إن أن إذا لكن بل حتى عند عندما بعد قبل بين كل بعض غير
        لي لك له لها لهم لنا بي به بها فيه فيها منه منها عليه عليها هناك هنا أيضا فقط يمكن يمكنني أريد يا و ف ب ل""",
    "pt": """a e o ao aos aquela aquele aquilo aqui as ate cada com como da dar das de dela dele deles depois do dos
        duas e
        ela elas ele eles em entre era eram essa essas esse esses esta estao estar estas este estes estou faz fazer foi
        foram ha isso isto ja la lhe mais mas me meu meus mesmo minha minhas muito na nao nas nem no nos nossa nosso num
        numa o onde os ou para pela pelas pelo pelos por porque posso pode podem pra qual quais quando quanta quantas
        quanto quantos que quem quero sao se sem ser seu seus so sobre sou sua suas tambem te tem tenho teu todo todos
        tu tua um uma umas uns vai voce voces vos vou""",
    "ru": """а без более бы был была были было быть в вам вас ваш ведь во вот все всего всех вы где да даже для до его
        ее ей ему если есть еще же за здесь и из или им их к как какая какие какой какую когда кого кому который которая
        которые кто куда ли либо лишь меня мне много могу может можно мой моя мои моего моей мою мы на над надо нам нас
        наш не него нее нет ни них но ну о об он она они оно от очень по под почему при про с сам себе себя сейчас со
        сколько так такая такой там тебе тебя тем то тогда того тоже только том ты у уже хочу чего чей чем что чтобы чья
        эта эти это этого этой этом этот эту я""",
    "pl": """a i o u w z aby ale ani az bardzo bez bo bowiem by byc byl byla byli bylo byly chce ci cie co czego czemu
        czy czyj dla
        dlaczego do gdy gdzie go ich ile im innych ja jak jaka jaki jakie jako je jego jej jest jestem jesli jeszcze juz
        kazdy kiedy kto ktora ktore ktory ktorych lub ma mam maja mi mna mnie moge moj moja moje moze mozna mu my na nad
        nam nas nasz nasza nasze nic nich nie nim niz o od on ona one oni ono oraz po poniewaz przed przez przy sa sie
        skad swoj ta tak taki takie tam te tego tej teraz to tobie tu tutaj twoj twoja ty tylko tym w we wiec wszystko
        wy z za ze zeby""",
    "zh": """什么 怎么 么样 哪里 哪儿 哪个 多少 为什 我们 你们 他们 她们 我的 你的 他的 这个 那个 这里 那里 可以 是不
        不是 没有 有没 如何 请问 吗 呢 吧 的 了""",
    "ja": """です ます した から ので ため こと もの これ それ あれ どれ この その あの どの ここ そこ どこ いつ だれ
        どう うす すか ですか ませ せん ない いる ある する して てい まし""",
    "ko": """니다 습니 입니 합니 있습 에서 으로 그리 고그 하는 하고 있는 어디 언제 무엇 누구 어떻 떻게 얼마 이것 그것
        저것""",
}
