"""The equations in numpy with 64 bits, written from the papers; they share no code with the product.

Every argument is a nested list or an array.
"""

import itertools

import numpy as np


def unit(x):
    """Vectors of length 1; a zero vector stays one."""
    x = np.asarray(x, dtype=np.float64)
    length = np.sqrt((x**2).sum(-1, keepdims=True))
    return np.divide(x, length, out=np.zeros_like(x), where=length > 0)


def cosines(x, y):
    return unit(x) @ unit(y).T


def error(x, y):
    """Mean squared error over the last axis."""
    return ((np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)) ** 2).mean(-1)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def multilingual_mse(teacher, source, target, teacher_target=None):
    return (error(teacher, source) + error(teacher if teacher_target is None else teacher_target, target)).mean()


def kd(teacher, student):
    return error(teacher, student).mean()


def embedding_alignment(teacher, student, mask, pooled=False):
    teacher, student, keep = np.asarray(teacher), np.asarray(student), np.asarray(mask, dtype=bool)
    if pooled:
        parts = zip(teacher, student, keep, strict=True)
        errors = [error(one[real].mean(0), other[real].mean(0)) for one, other, real in parts if real.any()]
    else:
        errors = error(teacher[keep], student[keep])
    return np.mean(errors) if len(errors) else 0.0


def multilingual_contrastive(teacher, source, target, labels="soft", sentences=None):
    names = sentences or teacher
    label = cosines(teacher, teacher) if labels == "soft" else [[float(a == b) for b in names] for a in names]
    return ((label - cosines(source, target)) ** 2).mean()


def contrastive_cross_entropy(teacher, source, target, temperature=0.05, reduction="sum"):
    total = -(cosines(teacher, teacher) * log_softmax(cosines(source, target) / temperature)).sum()
    return total if reduction == "sum" else total / len(teacher)


def shared(texts, i, others, j):
    """Whether row i and candidate j have a text in common; without texts nothing is equal."""
    return bool(texts) and bool(others) and bool(set(texts[i]) & set(np.ravel(others[j])))


def contrastive_distillation(student, teacher, bank, temperature=0.05, margin=0.0, texts_BS=None, bank_texts_K=None):
    found, alike = cosines(student, [*teacher, *bank]) / temperature, cosines(teacher, [*teacher, *bank])
    others = texts_BS and [*texts_BS, *(bank_texts_K or [-1] * len(bank))]
    loss = 0.0
    for i, row in enumerate(found):
        near = [(margin and alike[i, j] > 1 - margin) or shared(texts_BS, i, others, j) for j in range(len(row))]
        kept = [x for j, x in enumerate(row) if j == i or not near[j]]
        loss += np.log(np.exp(np.array(kept) - row.max()).sum()) + row.max() - row[i]
    return loss / len(student)


def guided_contrastive(
    t_q, t_p, q, p, negatives=None, scores=None, temperature=0.05, margin=0.0, texts_BS=None, negative_texts_BN=None
):
    loss = 0.0
    qp, qq, pp, t_qp, t_qq, t_pp = (
        cosines(*two) for two in ((q, p), (q, q), (p, p), (t_q, t_p), (t_q, t_q), (t_p, t_p))
    )
    for i in range(len(q)):
        limit, kept = t_qp[i, i] - margin, [qp[i, i]]
        for student, teacher in ((qp, t_qp), (qq, t_qq), (pp, t_pp)):
            others = [j for j in range(len(q)) if j != i and not shared(texts_BS, i, texts_BS, j)]
            kept += [student[i, j] for j in others if teacher[i, j] <= limit]
        for n in range(0 if negatives is None else len(negatives[i])):
            equal = negative_texts_BN and negative_texts_BN[i][n] in texts_BS[i]
            if scores[i][1 + n] <= scores[i][0] - margin and not equal:
                kept.append(cosines([q[i]], [negatives[i][n]])[0, 0])
        loss -= log_softmax(np.array([kept]) / temperature)[0, 0]
    return loss / len(q)


def _scores(q, p, negatives):
    return np.array([cosines([a], [b, *others])[0] for a, b, others in zip(q, p, negatives, strict=True)])


def margin_mse(scores, q, p, negatives):
    total, found = 0.0, _scores(q, p, negatives)
    for t, s in zip(np.array(scores), found, strict=True):
        total += sum(((s[0] - s[n]) - (t[0] - t[n])) ** 2 for n in range(1, len(s))) / (len(s) - 1)
    return total / len(q)


def listwise_kl(scores, q, p, negatives, temperature=0.05):
    label, found = (log_softmax(np.array(x) / temperature) for x in (scores, _scores(q, p, negatives)))
    return (np.exp(label) * (label - found)).sum() / len(q)


def similarity_distillation(teacher, target, bank, source=None, temperature=0.05):
    known = [*teacher, *bank]
    label, total = log_softmax(cosines(teacher, known) / temperature), 0.0
    for student in (target, source):
        if student is not None:
            total += (np.exp(label) * (label - log_softmax(cosines(student, known) / temperature))).sum()
    return total / len(teacher)


def supervised_contrastive(anchor, positive, negative, temperature=0.05, texts_BS=None, negative_texts_BN=None):
    others = None if negative_texts_BN is None else np.ravel(negative_texts_BN).tolist()
    return contrastive_distillation(anchor, positive, negative, temperature, 0.0, texts_BS, others)


def pkd(teacher, student):
    return error(unit(teacher), unit(student)).mean()


def metakd(teacher, student, domain, prototypes, teacher_states=None, student_states=None, own_share=0.5):
    near = cosines(teacher, prototypes)
    score = near[range(len(near)), domain]
    if len(prototypes) > 1:
        score = own_share * score + (1 - own_share) * (near.sum(1) - score) / (len(prototypes) - 1)
    errors = error(teacher, student)
    if teacher_states is not None:
        errors = errors + error(teacher_states, student_states).mean(1)
    return ((1 + score) / 2 * errors).mean()


def sentence_alignment(source, target, reduction="sum", texts_BS=None):
    product = np.asarray(source) @ np.asarray(target).T
    for i in range(len(product)):
        for j in range(len(product)):
            if i != j and shared(texts_BS, i, texts_BS, j):
                product[i, j] = -np.inf
    total = -np.trace(log_softmax(product)) - np.trace(log_softmax(product.T))
    return total if reduction == "sum" else total / len(source)


def sentence_similarity(source, target, reduction="sum"):
    own, other = (np.exp(log_softmax(np.asarray(side) @ np.asarray(side).T)) for side in (source, target))
    total = -np.log(np.cos(np.pi / 2 * (own - other))).sum()
    return total if reduction == "sum" else total / len(source) ** 2


def generative_target(masked, here, partner, task):
    """The dense target q as a dictionary, or None where the row has nothing to predict."""
    distinct = set(partner)
    q: dict[int, float] = {}
    if task == "smlm":
        q[masked] = 1.0
    elif task == "xtr" or (task == "ugt" and not here):
        q = {token: 1.0 / len(distinct) for token in distinct}
    elif task == "ugt":
        q[masked] = 0.5 if distinct else 1.0
        for token in distinct:
            q[token] = q.get(token, 0.0) + 0.5 / len(distinct)
    return q or None


def unified_generative(logits, masked, here, partner, partner_mask, task="ugt"):
    total, shares = 0.0, log_softmax(np.asarray(logits, dtype=np.float64))
    for i, share in enumerate(shares):
        real = [token for token, keep in zip(partner[i], partner_mask[i], strict=True) if keep]
        q = generative_target(masked[i], here[i], real, task)
        if q is not None:
            assert abs(sum(q.values()) - 1) < 1e-12
            total += sum(weight * (np.log(weight) - share[token]) for token, weight in q.items())
    return total / len(shares)


def softmax_classification(source, target, classifier, bias, label):
    u, v = np.asarray(source), np.asarray(target)
    return domain_adversarial(np.hstack([u, v, np.abs(u - v)]), classifier, bias, label)


def cosine_regression(source, target, score):
    return ((np.diag(cosines(source, target)) - score) ** 2).mean()


def domain_adversarial(source, domains, bias, domain):
    shares = log_softmax(np.asarray(source) @ np.asarray(domains).T + np.asarray(bias))
    return -shares[range(len(shares)), domain].mean()


def _huber(x, y):
    """Park et al. 2019, eq. 8."""
    return 0.5 * (x - y) ** 2 if abs(x - y) <= 1 else abs(x - y) - 0.5


def _distances(x):
    """Eq. 5, with the mean distance of eq. 6."""
    mu = np.mean([np.linalg.norm(x[i] - x[j]) for i, j in itertools.permutations(range(len(x)), 2)])
    return lambda i, j: np.linalg.norm(x[i] - x[j]) / mu


def _angles(x):
    """Eq. 9."""
    return lambda i, j, k: float(unit(x[i] - x[j]) @ unit(x[k] - x[j]))


def relational(teacher, source, target, teacher_target=None, relation="distance"):
    potential, members = {"distance": (_distances, 2), "angle": (_angles, 3)}[relation]
    total = 0.0
    for t, s in ((teacher, source), (teacher if teacher_target is None else teacher_target, target)):
        t, s = np.asarray(t, dtype=np.float64), np.asarray(s, dtype=np.float64)
        if tuples := list(itertools.permutations(range(len(t)), members)):
            psi_t, psi_s = potential(t), potential(s)
            total += np.mean([_huber(psi_t(*i), psi_s(*i)) for i in tuples])
    return total
