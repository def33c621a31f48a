import undertow.labels.pool as P

for T in (3, 2.5, 2):
    P.TELLING = T
    f = judge_labels(given, 6, [View(rows=rows)])
    print(T, f.rate, f.evidence.doubt)
