/// The notes of the sample.
let allNotes = [
  "Buy milk, eggs and bread on the way home",
  "Dentist appointment on Tuesday at nine",
  "Passwort für das WLAN im Büro ändern",
  "Der Zug nach München fährt um 7:42 Uhr von Gleis 3",
  "Llamar a mamá por su cumpleaños",
  "Receta: arroz con verduras y limón",
  "Réserver une table pour quatre personnes samedi soir",
  "Le chat doit aller chez le vétérinaire",
  "Pagare la bolletta della luce entro venerdì",
  "De fiets heeft een lekke band",
  "Yarın toplantıdan önce raporu bitir",
  "حجز تذاكر الطيران إلى القاهرة",
  "Idea: a garden with herbs on the balcony",
  "Return the library books before the end of the month",
  "Training plan: run five kilometres three times a week",
  "Ask the landlord about the broken heating",
]
