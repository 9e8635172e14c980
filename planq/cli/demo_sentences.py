"""The sentences that the demonstration encodes, of one word to some forty."""

SENTENCES = (
    "Hello.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is dozing by the window.",
    "Rain is expected in the north on Thursday, with sunshine returning by the weekend.",
    "The forecast promises showers first and clear skies from Saturday on.",
    "She bought two tickets for the late train to Lisbon.",
    "How do I reset my password?",
    "I have forgotten my login and cannot get into my account.",
    "The recipe asks for three eggs, a cup of flour, a pinch of salt and half a litre of milk.",
    "Whisk the batter until it is smooth, then let it rest for twenty minutes.",
    "Water boils at a lower temperature in the mountains, because the air presses on it less.",
    "Pressure falls with height.",
    "The museum opens at nine and closes at six, except on Mondays.",
    "Is the gallery open today?",
    "Parliament passed the budget after a debate that lasted until midnight.",
    "The central bank left its interest rate unchanged for the fourth time in a row.",
    "Shares fell sharply.",
    "Our team lost the final by a single goal in the last minute of extra time.",
    "The striker scored twice before half-time.",
    "He has played the violin since he was five and still practises every morning before work.",
    "An orchestra of eighty filled the small hall with sound.",
    "The patient reports mild pain in the left knee after long walks, none at rest, and no "
    "swelling; an X-ray taken in March showed nothing unusual, so physiotherapy twice a week was "
    "recommended, with another appointment in six weeks.",
    "Take one tablet with a glass of water after breakfast.",
    "The contract may be ended by either side with three months' notice in writing.",
    "Both parties agree to keep what they learn of each other's business to themselves, during "
    "the term of this agreement and for five years after its end.",
    "An integer sum does not depend on the order of its terms.",
    "Adding floating-point numbers in another order may give another result.",
    "The satellite circles the Earth every ninety minutes, five hundred kilometres above it.",
    "Galaxies move away from us the faster the farther they are.",
    "Bees tell each other by dancing where the flowers are.",
    "¿Dónde está la biblioteca?",
    "Thanks, see you tomorrow!",
)
