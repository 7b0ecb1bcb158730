"""The equations in numpy with 64 bits, written from the papers; they share no code with the product.

Every argument is a nested list or an array.
"""

import itertools

import numpy as np


def unit(vectors):
    """Vectors of length 1; a zero vector stays one."""
    vectors = np.asarray(vectors, dtype=np.float64)
    length = np.sqrt((vectors**2).sum(-1, keepdims=True))
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)


def cosines(first, second):
    return unit(first) @ unit(second).T


def error(first, second):
    """Mean squared error over the last axis."""
    return ((np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)) ** 2).mean(-1)


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def multilingual_mse(teacher, source, target, teacher_target=None):
    return (error(teacher, source) + error(teacher if teacher_target is None else teacher_target, target)).mean()


def kd(teacher, student):
    return error(teacher, student).mean()


def embedding_alignment(teacher, student, mask, pooled=False):
    teacher, student, keep = np.asarray(teacher), np.asarray(student), np.asarray(mask, dtype=bool)
    if pooled:
        parts = zip(teacher, student, keep, strict=True)
        errors = [error(first[real].mean(0), second[real].mean(0)) for first, second, real in parts if real.any()]
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


def shared(texts, row, others, candidate):
    """Whether `row` and `candidate` have a text in common; without texts nothing is equal."""
    return bool(texts) and bool(others) and bool(set(texts[row]) & set(np.ravel(others[candidate])))


def contrastive_distillation(student, teacher, bank, temperature=0.05, margin=0.0, texts_BS=None, bank_texts_K=None):
    logits, alike = cosines(student, [*teacher, *bank]) / temperature, cosines(teacher, [*teacher, *bank])
    others = texts_BS and [*texts_BS, *(bank_texts_K or [-1] * len(bank))]
    loss = 0.0
    for index, row in enumerate(logits):
        near = [
            (margin and alike[index, j] > 1 - margin) or shared(texts_BS, index, others, j) for j in range(len(row))
        ]
        candidate_logits = [x for j, x in enumerate(row) if j == index or not near[j]]
        loss += np.log(np.exp(np.array(candidate_logits) - row.max()).sum()) + row.max() - row[index]
    return loss / len(student)


def guided_contrastive(
    teacher_queries,
    teacher_passages,
    queries,
    passages,
    negatives=None,
    scores=None,
    temperature=0.05,
    margin=0.0,
    texts_BS=None,
    negative_texts_BN=None,
):
    loss = 0.0
    qp, qq, pp, t_qp, t_qq, t_pp = (
        cosines(*two)
        for two in (
            (queries, passages),
            (queries, queries),
            (passages, passages),
            (teacher_queries, teacher_passages),
            (teacher_queries, teacher_queries),
            (teacher_passages, teacher_passages),
        )
    )
    for row in range(len(queries)):
        limit, candidate_cosines = t_qp[row, row] - margin, [qp[row, row]]
        for student, teacher in ((qp, t_qp), (qq, t_qq), (pp, t_pp)):
            others = [j for j in range(len(queries)) if j != row and not shared(texts_BS, row, texts_BS, j)]
            candidate_cosines += [student[row, j] for j in others if teacher[row, j] <= limit]
        for number in range(0 if negatives is None else len(negatives[row])):
            equal = negative_texts_BN and negative_texts_BN[row][number] in texts_BS[row]
            if scores[row][1 + number] <= scores[row][0] - margin and not equal:
                candidate_cosines.append(cosines([queries[row]], [negatives[row][number]])[0, 0])
        loss -= log_softmax(np.array([candidate_cosines]) / temperature)[0, 0]
    return loss / len(queries)


def _scores(queries, passages, negatives):
    return np.array([cosines([a], [b, *others])[0] for a, b, others in zip(queries, passages, negatives, strict=True)])


def margin_mse(scores, queries, passages, negatives):
    total, student_rows = 0.0, _scores(queries, passages, negatives)
    for teacher_scores, student_scores in zip(np.array(scores), student_rows, strict=True):
        total += sum(
            ((student_scores[0] - student_scores[n]) - (teacher_scores[0] - teacher_scores[n])) ** 2
            for n in range(1, len(student_scores))
        ) / (len(student_scores) - 1)
    return total / len(queries)


def listwise_kl(scores, queries, passages, negatives, temperature=0.05):
    label, prediction = (
        log_softmax(np.array(x) / temperature) for x in (scores, _scores(queries, passages, negatives))
    )
    return (np.exp(label) * (label - prediction)).sum() / len(queries)


def similarity_distillation(teacher, target, bank, source=None, temperature=0.05):
    references = [*teacher, *bank]
    label, total = log_softmax(cosines(teacher, references) / temperature), 0.0
    for student in (target, source):
        if student is not None:
            total += (np.exp(label) * (label - log_softmax(cosines(student, references) / temperature))).sum()
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
    for row in range(len(product)):
        for column in range(len(product)):
            if row != column and shared(texts_BS, row, texts_BS, column):
                product[row, column] = -np.inf
    total = -np.trace(log_softmax(product)) - np.trace(log_softmax(product.T))
    return total if reduction == "sum" else total / len(source)


def sentence_similarity(source, target, reduction="sum"):
    source_shares, target_shares = (
        np.exp(log_softmax(np.asarray(side) @ np.asarray(side).T)) for side in (source, target)
    )
    total = -np.log(np.cos(np.pi / 2 * (source_shares - target_shares))).sum()
    return total if reduction == "sum" else total / len(source) ** 2


def generative_target(masked, here, partner, task):
    """The dense target q as a dictionary, or None where the row has nothing to predict."""
    distinct = set(partner)
    distribution: dict[int, float] = {}
    if task == "smlm":
        distribution[masked] = 1.0
    elif task == "xtr" or (task == "ugt" and not here):
        distribution = {token: 1.0 / len(distinct) for token in distinct}
    elif task == "ugt":
        distribution[masked] = 0.5 if distinct else 1.0
        for token in distinct:
            distribution[token] = distribution.get(token, 0.0) + 0.5 / len(distinct)
    return distribution or None


def unified_generative(logits, masked, here, partner, partner_mask, task="ugt"):
    total, shares = 0.0, log_softmax(np.asarray(logits, dtype=np.float64))
    for row, share in enumerate(shares):
        real = [token for token, keep in zip(partner[row], partner_mask[row], strict=True) if keep]
        distribution = generative_target(masked[row], here[row], real, task)
        if distribution is not None:
            assert abs(sum(distribution.values()) - 1) < 1e-12
            total += sum(weight * (np.log(weight) - share[token]) for token, weight in distribution.items())
    return total / len(shares)


def softmax_classification(source, target, classifier, bias, label):
    source_vectors, target_vectors = np.asarray(source), np.asarray(target)
    return domain_adversarial(
        np.hstack([source_vectors, target_vectors, np.abs(source_vectors - target_vectors)]), classifier, bias, label
    )


def cosine_regression(source, target, score):
    return ((np.diag(cosines(source, target)) - score) ** 2).mean()


def domain_adversarial(source, domains, bias, domain):
    shares = log_softmax(np.asarray(source) @ np.asarray(domains).T + np.asarray(bias))
    return -shares[range(len(shares)), domain].mean()


def _huber(first, second):
    """Park et al. 2019, eq. 8."""
    return 0.5 * (first - second) ** 2 if abs(first - second) <= 1 else abs(first - second) - 0.5


def _distances(vectors):
    """Eq. 5, with the mean distance of eq. 6."""
    mu = np.mean([np.linalg.norm(vectors[i] - vectors[j]) for i, j in itertools.permutations(range(len(vectors)), 2)])
    return lambda i, j: np.linalg.norm(vectors[i] - vectors[j]) / mu


def _angles(vectors):
    """Eq. 9."""
    return lambda i, j, k: float(unit(vectors[i] - vectors[j]) @ unit(vectors[k] - vectors[j]))


def relational(teacher, source, target, teacher_target=None, relation="distance"):
    potential, members = {"distance": (_distances, 2), "angle": (_angles, 3)}[relation]
    total = 0.0
    for teacher_vectors, student_vectors in (
        (teacher, source),
        (teacher if teacher_target is None else teacher_target, target),
    ):
        teacher_vectors, student_vectors = (
            np.asarray(teacher_vectors, dtype=np.float64),
            np.asarray(student_vectors, dtype=np.float64),
        )
        if tuples := list(itertools.permutations(range(len(teacher_vectors)), members)):
            psi_t, psi_s = potential(teacher_vectors), potential(student_vectors)
            total += np.mean([_huber(psi_t(*i), psi_s(*i)) for i in tuples])
    return total
