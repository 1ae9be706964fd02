"""Function words of five languages, which neither a search nor a comparison of texts stands on."""

from __future__ import annotations

from .analysis import fold

_TEXT = {
    "en": """
        a about above after again against all also am an and any are as at be because been before being below
        between both but by can could did do does doing down during each else ever every few for from further
        get gets give gives given had has have having he her here hers him his how i if in into is isn it its
        itself just let like made make makes may me might more most much must my no nor not now of off on once
        one only or other our ours out over own per please put same say says said shall she should since so some
        such take takes than that the their theirs them then there these they thing things this those through to
        too under until up upon us very was way we were what when where whether which while
        who whom whose why will with within without would yet you your yours tell know need needs many long""",
    "de": """
        aber alle als am an auch auf aus bei bin bis da das dass dein dem den der des die dies diese dieser
        dieses doch dort du durch ein eine einem einen einer eines er es für gegen hat haben hatte ich ihr im in
        ins ist ja jede jeder kann kein keine können man mehr mein mit muss müssen nach nicht noch nur ob oder
        ohne sein seine sich sie sind so soll sollen über um und uns unser unter vom von vor war was wann warum
        welche welcher welches wenn wer wie wir wird wo wurde zu zum zur lange viel viele oft""",
    "pt": """
        a ao aos as com como da das de deve do dos e ela ele eles em entre era essa esse esta este eu foi há
        isso isto já lhe mais mas me mesmo meu minha muito na nas nem no nos nossa nosso não o os ou para pela
        pelo pode por qual quais quando quanto quantos que quem se sem ser seu sua são só também te tem ter um
        uma umas uns você onde porque está""",
    "es": """
        a al algo como con cual cuales cuando cuanto cuantos de debe del desde donde e el ella ellos en entre
        era es esa ese eso esta este esto fue ha han hasta hay la las le les lo los mas me mi mis muy ni no nos
        nuestra nuestro o os para pero por porque puede que quien se ser si sin sobre son su sus también te
        tiene tu un una unas uno unos y ya qué cómo""",
    "fr": """
        a ai au aux avec ce ces cette cet comme combien dans de des doit du elle elles en entre est et eu eux il
        ils je la le les leur leurs lui ma mais me même mes mon ne nos notre nous on ou où par pas peut plus
        pour quand que quel quelle quelles quels qui quoi sa sans se ses si son sont sous sur ta te tes tu un
        une vos votre vous y été être sera""",
}

FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(fold(word) for word in text.split()) for language, text in _TEXT.items()
}
"""ISO 639-1 to folded words."""
