"""Documents in many languages are found by other forms of their words, by their digits, and by parts of compounds."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus
from citehound.errors import IndexUnusable
from citehound.parsing.language import detect

# Language: (text on notices of incidents, text on keeping invoices). The writing is our own.
TEXTS = {
    "ar": (
        "يجب على المورّد أن يُبلِغ البنك عن كل حادثة أمنية خلال ٢٤ ساعة من العلم بها في جميع الأحوال.",
        "تُحفظ الفواتير لدى قسم المحاسبة مدة عشر سنوات بعد انتهاء العقد ثم تُتلف بحضور شاهد.",
    ),
    "da": (
        "Leverandøren skal underrette banken om alle sikkerhedshændelser inden for 24 timer efter at have fået viden.",
        "Fakturaerne opbevares af regnskabsafdelingen i ti år efter kontraktens ophør og bliver derefter slettet.",
    ),
    "de": (
        "Der Lieferant muss die Bank über alle Vorfälle innerhalb von 24 Stunden nach der Entdeckung unterrichten.",
        "Für die Rechnungen gilt eine Aufbewahrungsfrist von zehn Jahren, und die Aufbewahrung ist zu belegen.",
    ),
    "el": (
        "Ο προμηθευτής πρέπει να ενημερώνει την τράπεζα για τα περιστατικά ασφαλείας μέσα σε 24 ώρες από τη γνώση τους.",
        "Τα τιμολόγια φυλάσσονται από το λογιστήριο για δέκα χρόνια μετά τη λήξη της σύμβασης και καταστρέφονται.",
    ),
    "en": (
        "The supplier shall notify the bank of all security incidents within 24 hours of becoming aware of them.",
        "Invoices are kept by the accounts department for ten years after the contract ends and are then shredded.",
    ),
    "es": (
        "El proveedor debe notificar al banco todos los incidentes de seguridad dentro de las 24 horas de conocerlos.",
        "Las facturas se conservan en el departamento contable por diez años después de que termine el contrato.",
    ),
    "fi": (
        "Toimittaja ilmoittaa pankille kaikista tietoturvapoikkeamista ja häiriöistä 24 tunnin kuluessa, kun ne ovat "
        "tulleet sen tietoon, ja se voi myös soittaa.",
        "Laskut säilytetään kirjanpito-osastolla kymmenen vuotta ja ne tuhotaan, kun sopimus on päättynyt, jos muuta "
        "ei ole sovittu.",
    ),
    "fr": (
        "Le fournisseur doit informer la banque de tous les incidents de sécurité dans les 24 heures de leur découverte.",
        "Les factures sont conservées par le service comptable pendant dix ans et sont ensuite détruites sur place.",
    ),
    "he": (
        "על הסַּפָּק להודיע לבנק על כל אירוע אבטחה בתוך 24 שעות מרגע שנודע לו עליו, ללא יוצא מן הכלל.",
        "החשבוניות נשמרות במחלקת הנהלת החשבונות עשר שנים לאחר סיום החוזה ואז נגרסות.",
    ),
    "hu": (
        "A szállító köteles a bankot minden biztonsági eseményről 24 órán belül értesíteni, és ezt az eseményt egy "
        "naplóban is rögzíteni kell.",
        "A számlákat a könyvelés a szerződés lejárta után tíz évig megőrzi, és azután ezt a példányt is meg kell semmisíteni.",
    ),
    "it": (
        "Il fornitore deve informare la banca di tutti gli incidenti di sicurezza entro 24 ore da quando ne è a conoscenza.",
        "Le fatture sono conservate dal reparto contabile per dieci anni dopo la fine del contratto e poi distrutte.",
    ),
    "ja": (
        "外部委託先は、情報漏えいなどの事故を知った時から２４時間以内に銀行へ通知しなければならない。",
        "請求書は契約終了後十年間、経理部で保管し、その後は裁断して廃棄する。",
    ),
    "km": (
        "អ្នកផ្គត់ផ្គង់ត្រូវជូនដំណឹងដល់ធនាគារអំពីឧប្បត្តិហេតុសន្តិសុខក្នុងរយៈពេល ២៤ ម៉ោង។",
        "វិក្កយបត្រត្រូវរក្សាទុកនៅផ្នែកគណនេយ្យរយៈពេលដប់ឆ្នាំ។",
    ),
    "ko": (
        "공급업체는 모든 보안 사고를 알게 된 때로부터 24시간 이내에 은행에 통지하여야 한다.",
        "청구서는 계약이 끝난 뒤 십 년 동안 회계 부서에서 보관한 다음 파기한다.",
    ),
    "lo": (
        "ຜູ້ສະໜອງຕ້ອງແຈ້ງໃຫ້ທະນາຄານຮູ້ກ່ຽວກັບເຫດການຄວາມປອດໄພພາຍໃນ ໒໔ ຊົ່ວໂມງ.",
        "ໃບເກັບເງິນຕ້ອງເກັບຮັກສາໄວ້ຢູ່ພະແນກບັນຊີເປັນເວລາສິບປີ.",
    ),
    "my": (
        "ပေးသွင်းသူသည် လုံခြုံရေးဖြစ်ရပ်အားလုံးကို ၂၄ နာရီအတွင်း ဘဏ်သို့ အကြောင်းကြားရမည်။",
        "ငွေတောင်းခံလွှာများကို စာရင်းကိုင်ဌာနတွင် ဆယ်နှစ် သိမ်းဆည်းရမည်။",
    ),
    "nl": (
        "De leverancier moet de bank binnen 24 uur op de hoogte stellen van alle beveiligingsincidenten en storingen.",
        "De facturen worden door de boekhouding tien jaar bewaard en na het einde van het contract vernietigd.",
    ),
    "no": (
        "Leverandøren skal varsle banken om alle sikkerhetshendelser innen 24 timer etter at den har blitt kjent med dem.",
        "Fakturaene blir oppbevart av regnskapsavdelingen i ti år etter at kontrakten er over, og så makulert.",
    ),
    "pt": (
        "O fornecedor deve notificar o banco de todos os incidentes de segurança em até 24 horas após a sua descoberta.",
        "As faturas são guardadas pela contabilidade por dez anos após o fim do contrato e depois são destruídas.",
    ),
    "ro": (
        "Furnizorul trebuie să informeze banca despre toate incidentele de securitate în 24 de ore de la data la care "
        "sunt cunoscute, prin telefon sau prin poștă, și nu mai târziu.",
        "Facturile sunt păstrate la contabilitate pentru zece ani de la încetarea contractului și apoi sunt distruse.",
    ),
    "ru": (
        "Поставщик обязан сообщать банку обо всех инцидентах безопасности в течение 24 часов с момента их обнаружения.",
        "Счета хранятся в бухгалтерии десять лет после окончания договора, а затем уничтожаются по учётной записи.",
    ),
    "sv": (
        "Leverantören ska underrätta banken om alla säkerhetsincidenter inom 24 timmar från det att den har fått kännedom.",
        "Fakturorna bevaras av ekonomiavdelningen i tio år efter det att avtalet har upphört och ska sedan förstöras.",
    ),
    "ta": (
        "வழங்குநர் அனைத்து பாதுகாப்பு சம்பவங்களையும் அறிந்த 24 மணி நேரத்திற்குள் வங்கிக்குத் தெரிவிக்க வேண்டும்.",
        "விலைப்பட்டியல்கள் கணக்குப் பிரிவில் பத்து ஆண்டுகள் பாதுகாக்கப்படும், பின்னர் அழிக்கப்படும்.",
    ),
    "th": (
        "ผู้ให้บริการต้องแจ้งธนาคารเกี่ยวกับเหตุการณ์ด้านความปลอดภัยทุกครั้งภายใน ๒๔ ชั่วโมงนับแต่ทราบเหตุ",
        "ใบแจ้งหนี้ต้องเก็บรักษาไว้ที่ฝ่ายบัญชีเป็นเวลาสิบปีหลังสิ้นสุดสัญญาแล้วจึงทำลาย",
    ),
    "tr": (
        "Tedarikçi, bütün güvenlik olaylarını öğrendikten sonra 24 saat içinde bankaya bildirir ve bu bildirim için bir "
        "kayıt tutar.",
        "Faturalar, sözleşme bittikten sonra on yıl muhasebede saklanır ve daha sonra bir tutanak ile imha edilir.",
    ),
    "zh": (
        "供应商应当在知悉任何安全事件后二十四小时内通知本银行，不得以任何理由拖延。",
        "发票由财务部门保存，期限为合同终止后十年，期满后予以销毁。",
    ),
}

# Language, a question with other forms of the words, and whether the first or second text answers.
ASKED = [
    ("ar", "المورد ابلاغ الحوادث الامنيه", 0), ("ar", "حفظ فاتورة المحاسبه", 1),
    ("da", "underretning om en sikkerhedshændelse", 0), ("da", "opbevaring af faktura", 1),
    ("de", "unterrichtet der Lieferant bei einem Vorfall", 0), ("de", "Frist Rechnung", 1),
    ("el", "ενημέρωση για περιστατικό", 0), ("el", "ΤΙΜΟΛΟΓΙΟ ΛΟΓΙΣΤΗΡΙΟ", 1),
    ("en", "notifying an incident", 0), ("en", "shredding the invoice", 1),
    ("es", "notificación de un incidente", 0), ("es", "conservación de la factura", 1),
    ("fi", "ilmoitus häiriöstä pankille", 0), ("fi", "laskun säilytys", 1),
    ("fr", "information sur un incident", 0), ("fr", "conservation d'une facture", 1),
    ("he", "הספק אירוע אבטחה", 0), ("he", "החשבוניות נשמרות", 1),
    ("hu", "a szállítók és a biztonság", 0), ("hu", "számla megőrzése", 1),
    ("it", "informazione su un incidente", 0), ("it", "conservazione della fattura", 1),
    ("ja", "事故の通知", 0), ("ja", "請求書の保管", 1),
    ("km", "ឧប្បត្តិហេតុសន្តិសុខ", 0), ("km", "រក្សាទុកវិក្កយបត្រ", 1),
    ("ko", "보안 사고를 통지", 0), ("ko", "청구서의 보관", 1),
    ("lo", "ເຫດການຄວາມປອດໄພ", 0), ("lo", "ເກັບຮັກສາໃບເກັບເງິນ", 1),
    ("my", "လုံခြုံရေး ဖြစ်ရပ်", 0), ("my", "ငွေတောင်းခံလွှာ", 1),
    ("nl", "beveiligingsincident van een leverancier", 0), ("nl", "factuur bewaren", 1),
    ("no", "varsling av en sikkerhetshendelse", 0), ("no", "oppbevaring av faktura", 1),
    ("pt", "notificação de um incidente", 0), ("pt", "guardar a fatura", 1),
    ("ro", "informarea băncii despre un incident", 0), ("ro", "păstrarea unei facturi", 1),
    ("ru", "сообщение об инциденте", 0), ("ru", "хранение счёта в учетной записи", 1),
    ("sv", "underrättelse om en säkerhetsincident", 0), ("sv", "fakturan och ekonomiavdelning", 1),
    ("ta", "பாதுகாப்பு சம்பவம்", 0), ("ta", "விலைப்பட்டியல்", 1),
    ("th", "เหตุการณ์ความปลอดภัย", 0), ("th", "การเก็บใบแจ้งหนี้", 1),
    ("tr", "güvenlik olayı bildirimi", 0), ("tr", "faturanın saklanması", 1),
    ("zh", "安全事件的通知", 0), ("zh", "发票保存期限", 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    """All languages in one source, two documents each."""
    root = tmp_path_factory.mktemp("languages")
    (root / "docs").mkdir()
    for code, texts in TEXTS.items():
        for number, text in enumerate(texts):
            (root / "docs" / f"{code}-{number}.txt").write_text(text, "utf-8")
    with Corpus.open(Config(root=root, sources=(SourceConfig(name="s", path=Path("docs")),)), write=True) as opened:
        opened.sync()
        yield opened


@pytest.mark.parametrize("code", TEXTS)
def test_the_language_of_each_document_is_detected(code: str) -> None:
    assert [detect(text) for text in TEXTS[code]] == [code, code]


@pytest.mark.parametrize(("code", "query", "answer"), ASKED, ids=[f"{c}: {q}" for c, q, _ in ASKED])
def test_a_question_with_other_forms_of_the_words_finds_the_document(
    corpus: Corpus, code: str, query: str, answer: int
) -> None:
    hits = corpus.search("s", query, principal=OWNER, k=9).hits  # languages share words
    assert next(hit.document for hit in hits if hit.document.startswith(f"s/{code}")) == f"s/{code}-{answer}"


@pytest.mark.parametrize(("code", "query"), [("ar", "24 ساعة"), ("th", "24 ชั่วโมง"), ("km", "24 ម៉ោង"), ("ja", "24時間")])
def test_digits_of_every_script_are_one(corpus: Corpus, code: str, query: str) -> None:
    assert corpus.search("s", query, principal=OWNER, k=1).hits[0].document == f"s/{code}-0"


def folder_of(tmp_path: Path, texts: dict[str, str]) -> Config:
    (tmp_path / "docs").mkdir(exist_ok=True)
    for name, text in texts.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text, "utf-8")
    return Config(root=tmp_path, sources=(SourceConfig(name="s", path=Path("docs")),))


GERMAN = {
    "frist": "# Unterlagen\n\nDie Aufbewahrungsfrist für Unterlagen ist nach dem Gesetz sechs Jahre und nicht zehn.\n",
    "halten": "# Archiv\n\nDie Aufbewahrung ist die Aufgabe des Archivs und wird mit dem Ende der Frist beendet.\n",
    "preis": "# Kosten\n\nDer Gesamtpreis ist in der Anlage genannt und wird mit der Rechnung des Monats fällig.\n",
    "reis": "# Kantine\n\nIn der Kantine ist der Reis von der Firma aus dem Nachbarort und nicht aus dem Lager.\n",
}


def found(config: Config, query: str) -> list[str]:
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
        return [hit.document.removeprefix("s/") for hit in corpus.search("s", query, principal=OWNER, k=9).hits]


def test_german_compounds_are_found_by_their_last_and_first_part(tmp_path: Path) -> None:
    config = folder_of(tmp_path, GERMAN)
    assert set(found(config, "Fristen")) == {"frist", "halten"}
    assert set(found(config, "Aufbewahrung")) == {"frist", "halten"}


def test_a_german_compound_finds_texts_with_its_parts_after_its_own(tmp_path: Path) -> None:
    assert found(folder_of(tmp_path, GERMAN), "Aufbewahrungsfristen") == ["frist", "halten"]


def test_only_words_of_the_corpus_are_parts_of_a_compound(tmp_path: Path) -> None:
    assert found(folder_of(tmp_path, GERMAN), "Reis") == ["reis"]


def test_compounds_of_other_languages_are_found_too(tmp_path: Path) -> None:
    texts = {
        "sv": "Leverantören ska rapportera varje säkerhetsincident och det är viktigt för att säkerhet är en fråga om tid.",
        "nl": "De bewaartermijn is tien jaar en de termijn begint op de dag van de factuur; bewaar het in het archief.",
    }
    config = folder_of(tmp_path, texts)
    assert found(config, "incident") == ["sv"]
    assert found(config, "termijn") == ["nl"]


def test_an_index_of_an_older_analysis_is_refused_and_brought_up_to_date_without_reading_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder_of(tmp_path, GERMAN)
    with monkeypatch.context() as older:
        older.setattr("citehound.index.sealing.FORMAT", 2)
        older.setattr("citehound.index.analysis.COMPOUNDING", {})
        with Corpus.open(config, write=True) as corpus:
            corpus.sync()
    with pytest.raises(IndexUnusable, match="older version; run `citehound index`"):
        Corpus.open(config)
    with Corpus.open(config, write=True) as corpus:
        assert corpus.sync().count("unchanged") == len(GERMAN)
        assert len(corpus.search("s", "Fristen", principal=OWNER).hits) == 2
