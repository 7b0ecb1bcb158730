"""The equations by brute force: plain Python floats (64 bits) and loops, no tensor library.

Every argument is a nested list. `None` of this shares code or ideas of vectorisation with the product.
"""

from __future__ import annotations

import math


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def cosine(x, y):
    lengths = math.sqrt(dot(x, x)) * math.sqrt(dot(y, y))
    return dot(x, y) / lengths if lengths > 0 else 0.0


def unit(x):
    length = math.sqrt(dot(x, x))
    return [a / length if length > 0 else 0.0 for a in x]


def squared_error(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x)


def softmax(x):
    top = max(x)
    parts = [math.exp(a - top) for a in x]
    return [part / sum(parts) for part in parts]


def multilingual_mse(teacher, source, target, teacher_target=None):
    total = 0.0
    for i in range(len(teacher)):
        total += squared_error(teacher[i], source[i])
        total += squared_error((teacher_target or teacher)[i], target[i])
    return total / len(teacher)


def kd(teacher, student):
    return sum(squared_error(t, s) for t, s in zip(teacher, student, strict=True)) / len(teacher)


def embedding_alignment(guide, student, mask, pooled=False):
    if not pooled:
        errors = [
            squared_error(guide[i][t], student[i][t])
            for i in range(len(guide))
            for t in range(len(guide[i]))
            if mask[i][t]
        ]
        return sum(errors) / len(errors) if errors else 0.0
    errors = []
    for i in range(len(guide)):
        real = [t for t in range(len(guide[i])) if mask[i][t]]
        if real:
            width = len(guide[i][0])
            means = [[sum(side[i][t][h] for t in real) / len(real) for h in range(width)] for side in (guide, student)]
            errors.append(squared_error(*means))
    return sum(errors) / len(errors) if errors else 0.0


def multilingual_contrastive(teacher, source, target, labels="soft", sentences=None):
    total = 0.0
    for i in range(len(teacher)):
        for j in range(len(teacher)):
            if labels == "soft":
                label = cosine(teacher[i], teacher[j])
            elif sentences is not None:
                label = 1.0 if sentences[i] == sentences[j] else 0.0
            else:
                label = 1.0 if teacher[i] == teacher[j] else 0.0
            total += (label - cosine(source[i], target[j])) ** 2
    return total / len(teacher) ** 2


def contrastive_cross_entropy(teacher, source, target, temperature=0.05, reduction="sum"):
    total = 0.0
    for i in range(len(teacher)):
        shares = softmax([cosine(source[i], target[k]) / temperature for k in range(len(target))])
        for j in range(len(teacher)):
            total -= cosine(teacher[i], teacher[j]) * math.log(shares[j])
    return total if reduction == "sum" else total / len(teacher)


def contrastive_distillation(student, teacher, bank, temperature=0.05):
    total = 0.0
    for i in range(len(student)):
        others = [cosine(student[i], t) / temperature for t in teacher]
        others += [cosine(student[i], q) / temperature for q in bank]
        total -= math.log(softmax(others)[i])
    return total / len(student)


def similarity_distillation(teacher, target, bank, source=None, temperature=0.05):
    total = 0.0
    known = [*teacher, *bank]
    for i in range(len(teacher)):
        label = softmax([cosine(teacher[i], z) / temperature for z in known])
        for student in (target, source):
            if student is not None:
                found = softmax([cosine(student[i], z) / temperature for z in known])
                total += sum(p * (math.log(p) - math.log(q)) for p, q in zip(label, found, strict=True))
    return total / len(teacher)


def supervised_contrastive(anchor, positive, negative, temperature=0.05):
    total = 0.0
    for i in range(len(anchor)):
        denominator = sum(math.exp(cosine(anchor[i], p) / temperature) for p in positive)
        denominator += sum(math.exp(cosine(anchor[i], n) / temperature) for n in negative)
        total -= math.log(math.exp(cosine(anchor[i], positive[i]) / temperature) / denominator)
    return total / len(anchor)


def pkd(teacher, student):
    errors = [
        squared_error(unit(teacher[i][layer]), unit(student[i][layer]))
        for i in range(len(teacher))
        for layer in range(len(teacher[i]))
    ]
    return sum(errors) / len(errors)


def metakd(teacher, student, domain, prototypes, teacher_states=None, student_states=None, own_share=0.5):
    total = 0.0
    for i in range(len(teacher)):
        score = cosine(teacher[i], prototypes[domain[i]])
        if len(prototypes) > 1:
            rest = [cosine(teacher[i], prototypes[p]) for p in range(len(prototypes)) if p != domain[i]]
            score = own_share * score + (1 - own_share) * sum(rest) / len(rest)
        error = squared_error(teacher[i], student[i])
        if teacher_states is not None:
            layers = len(teacher_states[i])
            error += sum(squared_error(teacher_states[i][n], student_states[i][n]) for n in range(layers)) / layers
        total += (1 + score) / 2 * error
    return total / len(teacher)


def sentence_alignment(source, target, reduction="sum"):
    total = 0.0
    batch = range(len(source))
    for j in batch:
        total -= math.log(softmax([dot(source[j], target[k]) for k in batch])[j])
        total -= math.log(softmax([dot(source[k], target[j]) for k in batch])[j])
    return total if reduction == "sum" else total / len(source)


def sentence_similarity(source, target, reduction="sum"):
    total = 0.0
    batch = range(len(source))
    for first in batch:
        own = softmax([dot(source[first], source[k]) for k in batch])
        other = softmax([dot(target[first], target[k]) for k in batch])
        for second in batch:
            total -= math.log(math.cos(math.pi / 2 * (own[second] - other[second])))
    return total if reduction == "sum" else total / len(source) ** 2


def generative_target(masked, here, partner, task):
    """The dense target q as a dictionary, or None where the row has nothing to predict."""
    distinct = set(partner)
    q: dict[int, float] = {}
    if task == "smlm" or (task == "mlm" and here):
        q[masked] = 1.0
    elif task == "xtr" or (task == "ugt" and not here):
        for token in distinct:
            q[token] = 1.0 / len(distinct)
    elif task == "ugt":
        q[masked] = 0.5 if distinct else 1.0
        for token in distinct:
            q[token] = q.get(token, 0.0) + 0.5 / len(distinct)
    return q or None


def unified_generative(logits, masked, here, partner, partner_mask, task="ugt"):
    total = 0.0
    for i in range(len(logits)):
        real = [token for token, keep in zip(partner[i], partner_mask[i], strict=True) if keep]
        q = generative_target(masked[i], here[i], real, task)
        if q is not None:
            assert abs(sum(q.values()) - 1) < 1e-12
            p = softmax(logits[i])
            total += sum(weight * (math.log(weight) - math.log(p[token])) for token, weight in q.items())
    return total / len(logits)


def _log_softmax(x):
    top = max(x)
    total = math.log(sum(math.exp(a - top) for a in x)) + top
    return [a - total for a in x]


def softmax_classification(source, target, classifier, bias, label):
    total = 0.0
    for u, v, wanted in zip(source, target, label, strict=True):
        features = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        logits = [dot(row, features) + b for row, b in zip(classifier, bias, strict=True)]
        total -= _log_softmax(logits)[wanted]
    return total / len(source)


def cosine_regression(source, target, score):
    return sum((cosine(u, v) - y) ** 2 for u, v, y in zip(source, target, score, strict=True)) / len(source)


def domain_adversarial(source, domains, bias, domain):
    total = 0.0
    for h, wanted in zip(source, domain, strict=True):
        total -= _log_softmax([dot(row, h) + b for row, b in zip(domains, bias, strict=True)])[wanted]
    return total / len(source)
