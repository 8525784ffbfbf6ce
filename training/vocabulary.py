"""Word lists and templates of training.sentences; nothing here is in the held-out sets."""


def _words(text: str) -> list[str]:
    return text.split()


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


NAMES = _words(
    """James Mary Robert Patricia John Jennifer Michael Linda David Elizabeth William Barbara
    Richard Susan Joseph Jessica Thomas Sarah Charles Karen Daniel Lisa Matthew Nancy Anthony Betty
    Mark Sandra Donald Ashley Steven Emily Paul Kimberly Andrew Margaret Joshua Donna Kenneth
    Michelle Kevin Carol Brian Amanda George Melissa Edward Deborah Ronald Stephanie Timothy Rebecca
    Jason Laura Jeffrey Sharon Ryan Cynthia Jacob Kathleen Gary Amy Nicholas Angela Eric Anna
    Jonathan Ruth Stephen Brenda Larry Pamela Justin Nicole Scott Katherine Brandon Samantha
    Benjamin Christine Samuel Catherine Gregory Virginia Frank Rachel Alexander Janet Raymond Emma
    Patrick Maria Jack Heather Dennis Diane Jerry Julie Olivia Liam Noah Sophia Lucas Grace Chloe
    Smith Johnson Brown Garcia Miller Davis Wilson Anderson Taylor Moore Jackson Martin Lee Thompson
    White Harris Clark Lewis Robinson Walker Young Allen King Wright Hill Green Baker Nelson Carter
    Mitchell Roberts Turner Phillips Nguyen Kim Chen Singh Lopez Gonzalez Murphy Kelly Cooper"""
)
CITIES = _words(
    """Boston Chicago Denver Seattle Houston Atlanta Dallas Phoenix Portland Miami London Paris
    Berlin Madrid Tokyo Sydney Toronto Dublin Vienna Oslo Austin Detroit Memphis Oakland Orlando
    Tampa Cleveland Nashville Baltimore Milwaukee Sacramento Singapore Amsterdam Montreal Vancouver
    Prague Lisbon Geneva Zurich Brooklyn Charlotte Columbus Pittsburgh Cincinnati Honolulu"""
)
MONTHS = _words(
    """January February March April May June July August September October November December"""
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday today tomorrow")
NOUNS = _words(
    """order invoice package account password appointment reservation ticket refund subscription
    payment flight hotel room meeting report delivery shipment address phone number email message
    voicemail contract receipt warranty battery router printer camera laptop keyboard monitor
    headset tablet charger policy claim balance statement upgrade coupon menu table pizza coffee
    salad sandwich recipe prescription doctor nurse dentist vaccine medicine calendar reminder alarm
    timer song playlist movie game book magazine newspaper weather forecast train bus taxi bicycle
    car engine tire garage window door kitchen garden bedroom bathroom roof heater furnace light
    bulb switch plug cable screen button file folder server database network website browser update
    backup code question answer problem idea reason choice project budget manager customer agent
    visitor passenger driver lawyer student teacher neighbor friend family mother father sister
    daughter husband wife baby dog cat horse bird tree flower mountain lake ocean island desert
    forest bridge tower castle church market station corner street road highway village city country
    world planet star moon sun cloud storm shadow fire water stone paper glass metal silver picture
    letter chair blanket pillow mirror basket bottle hammer ladder rope jacket sweater shirt shoe
    glove umbrella suitcase wallet ring clock candle drum guitar piano violin radio theater concert
    festival holiday journey adventure language history science music culture education health
    exercise breakfast lunch dinner cheese chicken butter sugar orange banana cherry grape potato
    onion carrot soup juice milk chocolate vanilla"""
)
ADJECTIVES = _words(
    """new old small large quick slow early late bright dark warm cold fresh clean simple easy
    difficult important available busy free blue red green yellow white black silver golden short
    long heavy light quiet loud strong weak cheap expensive modern local foreign public private safe
    dangerous happy sad angry tired hungry final first second next previous other same different
    extra main open closed ready missing broken perfect strange lovely beautiful careful useful
    honest gentle curious clever polite patient nervous proud famous ancient narrow wide deep
    shallow smooth rough sharp empty full hidden sudden usual rare common serious funny purple brown
    thick thin huge tiny familiar wonderful terrible comfortable electric digital automatic"""
)
VERBS = _words(
    """check find send change cancel confirm update review open close call help book move cover
    share track print repair replace return remove add start stop finish explain describe keep leave
    bring take watch read write play hear test measure build clean carry choose follow improve
    include offer order pick plan prepare protect provide pull push reach reduce remember repeat
    request save search select show sign skip speak spell store study teach touch turn use visit
    wash adjust arrange collect deliver discuss examine ignore invite manage mention notice organize
    photograph recommend schedule support translate understand welcome"""
)
PAST = _words(
    """checked found sent changed cancelled confirmed updated opened closed called helped booked
    moved covered shared tracked printed repaired replaced returned removed added finished explained
    kept left brought took watched read wrote played heard tested measured built cleaned carried
    chose followed improved offered ordered picked planned prepared protected pulled pushed reached
    remembered repeated saved showed signed studied taught touched turned used visited washed bought
    sold lost forgot broke threw caught drew drank ate grew knew met painted paid rode sang saw"""
)
ADVERBS = _words(
    """quickly slowly carefully soon again now later today tonight once twice together outside
    inside nearby quietly suddenly finally usually sometimes always rarely early gladly easily
    directly immediately yesterday somewhere everywhere alone properly completely"""
)
PEOPLE = _lines(
    """the young man
    the woman in the {adjective} coat
    my {adjective} neighbor
    our manager
    the whole team
    everyone in {city}
    {name}
    {name} and {name}
    her older brother
    his best friend
    the new doctor
    the children
    a {adjective} stranger
    most people
    the driver
    she
    he
    they
    we
    you
    I"""
)
THINGS = _lines(
    """the {noun}
    a {adjective} {noun}
    the {adjective} {noun}
    this {noun}
    that {adjective} {noun}
    his {noun}
    her {adjective} {noun}
    some {noun} and some {noun}
    every {noun}
    our {noun}
    another {noun}
    the {noun} of the {noun}
    the {noun} next to the {noun}"""
)
WHERE_WHEN = _lines(
    """in {city}
    before {day}
    after the {noun}
    behind the {noun}
    near the {adjective} {noun}
    at {clock}
    on {date}
    last {month}
    every {day}
    without a {noun}
    for the {noun}
    with {name}
    during the {noun}
    {adverb}
    {adverb}
    under the {noun}
    between the {noun} and the {noun}
    for {small} years
    since {year}"""
)
CLAUSES = _lines(
    """{person} {past} {thing}
    {person} {past} {thing} {when}
    {person} {past} {thing} {when} {when}
    {person} could {verb} {thing} {when}
    {person} will {verb} {thing}
    {person} should {verb} {thing} {when}
    {person} never {past} {thing}
    {person} {adverb} {past} {thing}
    {thing} was {adjective}
    {thing} was {adjective} and {adjective}
    {thing} will be {adjective} {when}
    {thing} looked {adjective} {when}
    there is a {adjective} {noun} {when}
    there were {small} {noun}s {when}
    it was {adjective} to {verb} {thing}
    it is too {adjective} for {thing}
    nobody wanted to {verb} {thing}
    {when}, {person} {past} {thing}
    after {person} {past} {thing}, {person} {past} {thing}
    when {thing} is {adjective}, {person} can {verb} {thing}
    {person} had to {verb} {thing} before {person} could {verb} {thing}
    {person} wondered why {thing} was so {adjective}
    {thing} that {person} {past} is {adjective}
    the more {person} {past}, the more {adjective} {thing} became
    {person} thought about {thing}
    {person} and {person} {past} {thing} together"""
)
JOINTS = [", and ", ", but ", ", so ", " because ", " while ", ", or ", " until ", ". Then "]
QUESTION_HEADS = _lines(
    """Did you know that
    Do you think that
    Is it true that
    Why do they say that
    {name}, did you hear that
    Are you sure that"""
)
AGENT = _lines(
    """Hello, thanks for calling. How can I help you today?
    Hi {name}, this is the help desk. What can I do for you?
    Good morning, you have reached the {noun} department.
    Thank you for calling {name} and {name}. My name is {name}.
    Sure, I can help you with that {noun}.
    Your {noun} number {number} is {adjective} and {adjective}.
    I found {small} {noun}s for {name} in {city}.
    Your appointment with Dr. {name} is on {day}, {date}, at {clock}.
    The total comes to {money}.
    The {adjective} {noun} costs {money}, and the {adjective} one costs {money}.
    Could you please spell your last name?
    Please call me back at {phone}.
    The flight to {city} leaves at {clock} from gate {small}.
    It will be {small} degrees in {city} on {day}.
    There is a {percent} chance of snow tomorrow.
    Would you like me to {verb} the {noun} or {verb} the {noun}?
    Okay, I will {verb} your {noun} {adverb}.
    One moment please, while I {verb} the {adjective} {noun}.
    I am sorry, I did not catch that. Could you say it again?
    Let me see. Yes, the {noun} is {adjective}.
    No problem, {name}. Is there anything else?
    You can {verb} it {adverb}, or wait until {day}.
    We are open from {clock} to {clock}, {day} through {day}.
    I have moved your {noun} from {day} to {day}.
    In {year}, the company had {big} customers.
    The lesson starts in {small} minutes.
    Turn right on {name} Street, then go {small} miles north.
    Great, I have you down for {small} people at {clock}.
    Your payment of {money} is due on {date}.
    Please {verb} the {adjective} {noun} before you {verb} the {noun}.
    Why did {name} {verb} the {noun} {adverb}?
    If the {noun} does not work, {verb} the {noun} and try again.
    Thank you so much, and have a {adjective} day.
    Goodbye {name}, talk to you {adverb}.
    What time is it in {city}? It is {clock}.
    How many {noun}s do you need? About {number}.
    Where is the {adjective} {noun}? It is behind the {adjective} {noun}.
    The address is {number} {name} Avenue, {city}.
    Reply yes to {verb}, or no to {verb}.
    It takes about {small} hours and {small} minutes.
    The server answered in {number} milliseconds.
    Take the {place} exit, and {verb} at the {adjective} {noun}.
    Do you want the {adjective} one, the {adjective} one, or both?
    Absolutely. I will {verb} {name} and {verb} the {noun} right away.
    Well, that depends on the {noun}.
    I can offer you a {percent} discount on the {noun}.
    Good evening. Your {noun} will arrive at {clock}.
    I've just sent the {noun} to your {noun}.
    I'll need your {noun} number and your {noun}.
    It looks like the {noun} didn't go through.
    Don't worry, we'll {verb} the {noun} for you.
    You're welcome, {name}. That's what I'm here for.
    That's a {adjective} question. Let me ask my {noun}.
    Can you tell me when you {past} the {noun}?
    Have you tried to {verb} the {noun} again?
    I'd be happy to {verb} that, {name}.
    We've {past} your {noun}, and it's {adjective} now.
    They won't {verb} the {noun} until {day}.
    There's a {adjective} {noun} in {city} that isn't {adjective}.
    As of {day}, the {noun} is {adjective}.
    To {verb} your {noun}, press {small}. To {verb} a {noun}, press {small}.
    Is {day} at {clock} okay for you, or is {clock} better?
    Your {noun} is {percent} complete.
    I see that you {past} a {adjective} {noun} on {date}.
    Which {noun} are you calling about?
    What's the best number to reach you at?
    Please stay on the line while I {verb} your {noun}.
    Our {noun} team will {verb} you within {small} hours.
    Just so you know, the {noun} is {adjective} on {day}.
    May I have your full name and your {noun}, please?
    The {noun} was {past} by {name} at {clock}.
    Alright, your {noun} is all set for {day}.
    Is the {noun} for {name} or for {name}?
    First, {verb} the {noun}. Second, {verb} the {noun}. Finally, {verb} it.
    I'm afraid we can't {verb} the {noun} {adverb}.
    Our {adjective} {noun} comes with {noun} and {noun}.
    Are you still there? I couldn't hear you.
    Please say that one more time, a bit more slowly.
    You have {small} new messages and {small} {adjective} ones."""
)
FIGURES = _lines(
    """That is spelled {spell}.
    {name}, spelled {spell}.
    My confirmation code is {spell} {digits}.
    Your code is {digits}.
    The reference is {code}.
    It's {digits}, then {spell}.
    Order number {number}, placed on {date}, {year}.
    It weighs {decimal} kilograms and costs {money}.
    The distance is {decimal} miles, or about {number} meters.
    Between {year} and {year}, it grew by {percent}.
    The balance is {money} and the limit is {money}.
    We sold {big} units for {money}.
    From {clock} until {clock} on {date}.
    Flight {number} to {city}, gate {small}, boards at {clock}.
    Version {decimal} came out on {date}.
    Call {phone} or {phone}.
    Room {number}, floor {small}.
    {number} plus {number} is not {number}.
    Your ticket is {code}, and your seat is {small}.
    It was {number} degrees at {clock}.
    The {place} of {month}, {year}, was a {day}.
    Dial {phone}, extension {number}.
    Model {code} has a {decimal} inch screen.
    Chapter {small}, page {number}.
    They won {small} to {small} in the {place} round."""
)
SHORT = _lines(
    """Yes.
    No.
    Yes, please.
    No, thank you.
    Okay.
    Sure!
    Sure thing.
    Of course.
    Certainly.
    Hello?
    Hello, {name}.
    Hi there!
    Goodbye.
    Bye, {name}.
    Thanks.
    Thank you.
    You're welcome.
    Sorry?
    Excuse me.
    I see.
    Right.
    All right.
    Maybe.
    Not yet.
    Not really.
    Exactly.
    Perfect.
    Great!
    Really?
    One second.
    Just a moment.
    Go ahead.
    Anything else?
    Got that.
    {day}.
    {day} at {clock}.
    {money}.
    {small}.
    {adjective}.
    The {noun}?
    {city}?
    In {city}.
    Well, maybe.
    Good night.
    Welcome back!"""
)
MIXTURES = _lines(
    """the {w} of {w} and {w}
    {w} {w} {w}
    a {w} {w} was {w} in the {w}
    {w}, {w}, and {w}
    I {past} that {w} is a {w} {w}
    they {past} the {w} with {w} {w}
    the {w} {noun} for the {w}
    it is {adjective} to {verb} the {w} {w}
    you {verb} the {w}
    this {w} {noun} has no {w}
    her {w} and his {w} {noun}
    what {w} did the {noun} {w}
    some {w} are {adjective} but {w} are {w}
    a {adjective} {w} near the {w}
    the {w} {w} {past} the {w} {adverb}
    {name} {past} {w} and {w}"""
)
LISTS = {
    **{"name": NAMES, "city": CITIES, "month": MONTHS, "day": DAYS, "noun": NOUNS},
    **{"adjective": ADJECTIVES, "verb": VERBS, "past": PAST, "adverb": ADVERBS},
    **{"person": PEOPLE, "thing": THINGS, "when": WHERE_WHEN},
}
