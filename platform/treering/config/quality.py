"""The section `curation.quality` of an experiment: which documents a classifier judges, and by which rule."""

from pydantic import Field

from treering.config.model import Section


class QualityConfig(Section):
    """A classifier, trained on corpora that are declared good, judges the documents of other corpora.

    A document is kept if a draw from a Pareto distribution is higher than 1 - score: the rule of GPT-3 (Brown et al.
    2020, arXiv 2005.14165, appendix A), with alpha 9 there, which MT-NLG follows (arXiv 2201.11990, section 3).

    Attributes:
        good: corpora whose documents are good ones.
        corpora: corpora whose documents are judged; the classifier learns from them what is not good.
        alpha: of the Pareto distribution: a document with score s is kept with the probability (2 - s)^-alpha. The
            default 3 is The Pile's (Gao et al. 2020, arXiv 2101.00027, appendix C.1, and the code of its filter): it
            keeps an eighth of the documents with score 0.
    """

    good: tuple[str, ...] = Field(min_length=1)
    corpora: tuple[str, ...] = Field(min_length=1)
    alpha: float = Field(3.0, ge=0.1, le=100.0)
