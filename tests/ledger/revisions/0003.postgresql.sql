CREATE TABLE public.ledger_attempt (
    run text NOT NULL,
    number bigint NOT NULL,
    started_at double precision NOT NULL,
    ended_at double precision,
    status text,
    reason text,
    host text NOT NULL,
    world_size bigint NOT NULL,
    code text,
    environment text,
    parent_step bigint,
    on_path boolean NOT NULL,
    commit text
);
CREATE TABLE public.ledger_checkpoint (
    key text NOT NULL,
    run text NOT NULL,
    attempt bigint,
    step bigint NOT NULL,
    digest text,
    status text NOT NULL,
    tokens bigint,
    bytes bigint,
    created_at double precision,
    place text
);
CREATE TABLE public.ledger_corpus (
    key text NOT NULL,
    name text NOT NULL,
    licence text NOT NULL,
    documents bigint NOT NULL,
    tokens bigint NOT NULL
);
CREATE TABLE public.ledger_licence (
    corpus text NOT NULL,
    licence text NOT NULL,
    documents bigint NOT NULL,
    tokens bigint NOT NULL
);
CREATE TABLE public.ledger_note (
    key text NOT NULL,
    run text NOT NULL,
    at double precision NOT NULL,
    by text NOT NULL,
    host text,
    text text NOT NULL,
    folded text NOT NULL,
    origin text NOT NULL
);
CREATE TABLE public.ledger_promotion (
    key text NOT NULL,
    run text NOT NULL,
    alias text NOT NULL,
    checkpoint text NOT NULL,
    step bigint NOT NULL,
    at double precision NOT NULL,
    by text NOT NULL,
    level text NOT NULL,
    required text NOT NULL
);
CREATE TABLE public.ledger_read (
    checkpoint text NOT NULL,
    corpus text NOT NULL,
    name text NOT NULL,
    samples bigint,
    tokens bigint,
    epochs double precision
);
CREATE TABLE public.ledger_run (
    key text NOT NULL,
    id text NOT NULL,
    digest text NOT NULL,
    project text NOT NULL,
    experiment text NOT NULL,
    name text NOT NULL,
    trainer text NOT NULL,
    state text NOT NULL,
    started_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    step bigint NOT NULL,
    tokens bigint,
    blend text,
    corpora boolean NOT NULL,
    host text NOT NULL,
    folder text NOT NULL,
    extent text NOT NULL,
    "position" text NOT NULL,
    projection text NOT NULL,
    shipped_at double precision NOT NULL
);
CREATE TABLE public.ledger_score (
    checkpoint text NOT NULL,
    task text NOT NULL,
    metric text NOT NULL,
    shots bigint NOT NULL,
    value double precision,
    stderr double precision
);
CREATE TABLE public.ledger_source (
    key text NOT NULL,
    project text NOT NULL,
    host text NOT NULL,
    folder text NOT NULL,
    seen_at double precision NOT NULL
);
CREATE TABLE public.ledger_tag (
    key text NOT NULL,
    run text NOT NULL,
    at double precision NOT NULL,
    by text NOT NULL,
    host text,
    tag text NOT NULL,
    given boolean NOT NULL,
    origin text NOT NULL
);
CREATE TABLE public.ledger_unread (
    source text NOT NULL,
    name text NOT NULL,
    problem text NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.ledger_version (
    version_num character varying(32) NOT NULL
);
INSERT INTO public.ledger_attempt VALUES ('key-1', 1, 1.5, 1.5, 'status 1', 'reason 1', 'host 1', 1, 'code 1', 'environment 1', 1, true, 'commit 1');
INSERT INTO public.ledger_attempt VALUES ('key-2', 2, 2.5, 2.5, 'status 2', 'reason 2', 'host 2', 2, 'code 2', 'environment 2', 2, true, 'commit 2');
INSERT INTO public.ledger_checkpoint VALUES ('key-1', 'key-1', 1, 1, 'digest 1', 'status 1', 1, 1, 1.5, 'place 1');
INSERT INTO public.ledger_checkpoint VALUES ('key-2', 'key-2', 2, 2, 'digest 2', 'status 2', 2, 2, 2.5, 'place 2');
INSERT INTO public.ledger_corpus VALUES ('key-1', 'name 1', 'licence 1', 1, 1);
INSERT INTO public.ledger_corpus VALUES ('key-2', 'name 2', 'licence 2', 2, 2);
INSERT INTO public.ledger_licence VALUES ('key-1', 'key-1', 1, 1);
INSERT INTO public.ledger_licence VALUES ('key-2', 'key-2', 2, 2);
INSERT INTO public.ledger_note VALUES ('key-1', 'key-1', 1.5, 'by 1', 'host 1', 'text 1', 'folded 1', 'origin 1');
INSERT INTO public.ledger_note VALUES ('key-2', 'key-2', 2.5, 'by 2', 'host 2', 'text 2', 'folded 2', 'origin 2');
INSERT INTO public.ledger_promotion VALUES ('key-1', 'key-1', 'alias 1', 'checkpoint 1', 1, 1.5, 'by 1', 'level 1', 'required 1');
INSERT INTO public.ledger_promotion VALUES ('key-2', 'key-2', 'alias 2', 'checkpoint 2', 2, 2.5, 'by 2', 'level 2', 'required 2');
INSERT INTO public.ledger_read VALUES ('key-1', 'key-1', 'name 1', 1, 1, 1.5);
INSERT INTO public.ledger_read VALUES ('key-2', 'key-2', 'name 2', 2, 2, 2.5);
INSERT INTO public.ledger_run VALUES ('key-1', 'id 1', 'digest 1', 'project 1', 'experiment 1', 'name 1', 'trainer 1', 'state 1', 1.5, 1.5, 1, 1, 'blend 1', true, 'host 1', 'folder 1', 'extent 1', 'position 1', 'projection 1', 1.5);
INSERT INTO public.ledger_run VALUES ('key-2', 'id 2', 'digest 2', 'project 2', 'experiment 2', 'name 2', 'trainer 2', 'state 2', 2.5, 2.5, 2, 2, 'blend 2', true, 'host 2', 'folder 2', 'extent 2', 'position 2', 'projection 2', 2.5);
INSERT INTO public.ledger_score VALUES ('key-1', 'key-1', 'key-1', 1, 1.5, 1.5);
INSERT INTO public.ledger_score VALUES ('key-2', 'key-2', 'key-2', 2, 2.5, 2.5);
INSERT INTO public.ledger_source VALUES ('key-1', 'project 1', 'host 1', 'folder 1', 1.5);
INSERT INTO public.ledger_source VALUES ('key-2', 'project 2', 'host 2', 'folder 2', 2.5);
INSERT INTO public.ledger_tag VALUES ('key-1', 'key-1', 1.5, 'by 1', 'host 1', 'tag 1', true, 'origin 1');
INSERT INTO public.ledger_tag VALUES ('key-2', 'key-2', 2.5, 'by 2', 'host 2', 'tag 2', true, 'origin 2');
INSERT INTO public.ledger_unread VALUES ('key-1', 'key-1', 'problem 1', 1.5);
INSERT INTO public.ledger_unread VALUES ('key-2', 'key-2', 'problem 2', 2.5);
INSERT INTO public.ledger_version VALUES ('0003');
ALTER TABLE ONLY public.ledger_version
    ADD CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.ledger_attempt
    ADD CONSTRAINT pk_ledger_attempt PRIMARY KEY (run, number);
ALTER TABLE ONLY public.ledger_checkpoint
    ADD CONSTRAINT pk_ledger_checkpoint PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_corpus
    ADD CONSTRAINT pk_ledger_corpus PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_licence
    ADD CONSTRAINT pk_ledger_licence PRIMARY KEY (corpus, licence);
ALTER TABLE ONLY public.ledger_note
    ADD CONSTRAINT pk_ledger_note PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_promotion
    ADD CONSTRAINT pk_ledger_promotion PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_read
    ADD CONSTRAINT pk_ledger_read PRIMARY KEY (checkpoint, corpus);
ALTER TABLE ONLY public.ledger_run
    ADD CONSTRAINT pk_ledger_run PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_score
    ADD CONSTRAINT pk_ledger_score PRIMARY KEY (checkpoint, task, metric, shots);
ALTER TABLE ONLY public.ledger_source
    ADD CONSTRAINT pk_ledger_source PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_tag
    ADD CONSTRAINT pk_ledger_tag PRIMARY KEY (key);
ALTER TABLE ONLY public.ledger_unread
    ADD CONSTRAINT pk_ledger_unread PRIMARY KEY (source, name);
CREATE INDEX ix_ledger_checkpoint_digest ON public.ledger_checkpoint USING btree (digest);
CREATE INDEX ix_ledger_checkpoint_run ON public.ledger_checkpoint USING btree (run);
CREATE INDEX ix_ledger_note_run ON public.ledger_note USING btree (run);
CREATE INDEX ix_ledger_promotion_run ON public.ledger_promotion USING btree (run);
CREATE INDEX ix_ledger_run_experiment ON public.ledger_run USING btree (experiment);
CREATE INDEX ix_ledger_run_id ON public.ledger_run USING btree (id);
CREATE INDEX ix_ledger_run_project ON public.ledger_run USING btree (project);
CREATE INDEX ix_ledger_run_updated_at ON public.ledger_run USING btree (updated_at);
CREATE INDEX ix_ledger_score_task_metric_value ON public.ledger_score USING btree (task, metric, value);
CREATE INDEX ix_ledger_tag_run ON public.ledger_tag USING btree (run);
ALTER TABLE ONLY public.ledger_attempt
    ADD CONSTRAINT fk_ledger_attempt_run FOREIGN KEY (run) REFERENCES public.ledger_run(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_checkpoint
    ADD CONSTRAINT fk_ledger_checkpoint_run FOREIGN KEY (run) REFERENCES public.ledger_run(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_licence
    ADD CONSTRAINT fk_ledger_licence_corpus FOREIGN KEY (corpus) REFERENCES public.ledger_corpus(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_note
    ADD CONSTRAINT fk_ledger_note_run FOREIGN KEY (run) REFERENCES public.ledger_run(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_promotion
    ADD CONSTRAINT fk_ledger_promotion_run FOREIGN KEY (run) REFERENCES public.ledger_run(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_read
    ADD CONSTRAINT fk_ledger_read_checkpoint FOREIGN KEY (checkpoint) REFERENCES public.ledger_checkpoint(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_score
    ADD CONSTRAINT fk_ledger_score_checkpoint FOREIGN KEY (checkpoint) REFERENCES public.ledger_checkpoint(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_tag
    ADD CONSTRAINT fk_ledger_tag_run FOREIGN KEY (run) REFERENCES public.ledger_run(key) ON DELETE CASCADE;
ALTER TABLE ONLY public.ledger_unread
    ADD CONSTRAINT fk_ledger_unread_source FOREIGN KEY (source) REFERENCES public.ledger_source(key) ON DELETE CASCADE;
