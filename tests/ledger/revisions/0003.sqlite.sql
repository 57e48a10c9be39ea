BEGIN TRANSACTION;
CREATE TABLE ledger_attempt (
	run TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	started_at FLOAT NOT NULL, 
	ended_at FLOAT, 
	status TEXT, 
	reason TEXT, 
	host TEXT NOT NULL, 
	world_size BIGINT NOT NULL, 
	code TEXT, 
	environment TEXT, 
	parent_step BIGINT, 
	on_path BOOLEAN NOT NULL, "commit" TEXT, 
	CONSTRAINT pk_ledger_attempt PRIMARY KEY (run, number), 
	CONSTRAINT fk_ledger_attempt_run FOREIGN KEY(run) REFERENCES ledger_run ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_attempt" VALUES('key-1',1,1.5,1.5,'status 1','reason 1','host 1',1,'code 1','environment 1',1,1,'commit 1');
INSERT INTO "ledger_attempt" VALUES('key-2',2,2.5,2.5,'status 2','reason 2','host 2',2,'code 2','environment 2',2,1,'commit 2');
CREATE TABLE ledger_checkpoint (
	"key" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	attempt BIGINT, 
	step BIGINT NOT NULL, 
	digest TEXT, 
	status TEXT NOT NULL, 
	tokens BIGINT, 
	bytes BIGINT, 
	created_at FLOAT, 
	place TEXT, 
	CONSTRAINT pk_ledger_checkpoint PRIMARY KEY ("key"), 
	CONSTRAINT fk_ledger_checkpoint_run FOREIGN KEY(run) REFERENCES ledger_run ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_checkpoint" VALUES('key-1','key-1',1,1,'digest 1','status 1',1,1,1.5,'place 1');
INSERT INTO "ledger_checkpoint" VALUES('key-2','key-2',2,2,'digest 2','status 2',2,2,2.5,'place 2');
CREATE TABLE ledger_corpus (
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	licence TEXT NOT NULL, 
	documents BIGINT NOT NULL, 
	tokens BIGINT NOT NULL, 
	CONSTRAINT pk_ledger_corpus PRIMARY KEY ("key")
);
INSERT INTO "ledger_corpus" VALUES('key-1','name 1','licence 1',1,1);
INSERT INTO "ledger_corpus" VALUES('key-2','name 2','licence 2',2,2);
CREATE TABLE ledger_licence (
	corpus TEXT NOT NULL, 
	licence TEXT NOT NULL, 
	documents BIGINT NOT NULL, 
	tokens BIGINT NOT NULL, 
	CONSTRAINT pk_ledger_licence PRIMARY KEY (corpus, licence), 
	CONSTRAINT fk_ledger_licence_corpus FOREIGN KEY(corpus) REFERENCES ledger_corpus ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_licence" VALUES('key-1','key-1',1,1);
INSERT INTO "ledger_licence" VALUES('key-2','key-2',2,2);
CREATE TABLE ledger_note (
	"key" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	"by" TEXT NOT NULL, 
	host TEXT, 
	text TEXT NOT NULL, 
	folded TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	CONSTRAINT pk_ledger_note PRIMARY KEY ("key"), 
	CONSTRAINT fk_ledger_note_run FOREIGN KEY(run) REFERENCES ledger_run ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_note" VALUES('key-1','key-1',1.5,'by 1','host 1','text 1','folded 1','origin 1');
INSERT INTO "ledger_note" VALUES('key-2','key-2',2.5,'by 2','host 2','text 2','folded 2','origin 2');
CREATE TABLE ledger_promotion (
	"key" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	alias TEXT NOT NULL, 
	checkpoint TEXT NOT NULL, 
	step BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	"by" TEXT NOT NULL, 
	level TEXT NOT NULL, 
	required TEXT NOT NULL, 
	CONSTRAINT pk_ledger_promotion PRIMARY KEY ("key"), 
	CONSTRAINT fk_ledger_promotion_run FOREIGN KEY(run) REFERENCES ledger_run ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_promotion" VALUES('key-1','key-1','alias 1','checkpoint 1',1,1.5,'by 1','level 1','required 1');
INSERT INTO "ledger_promotion" VALUES('key-2','key-2','alias 2','checkpoint 2',2,2.5,'by 2','level 2','required 2');
CREATE TABLE ledger_read (
	checkpoint TEXT NOT NULL, 
	corpus TEXT NOT NULL, 
	name TEXT NOT NULL, 
	samples BIGINT, 
	tokens BIGINT, 
	epochs FLOAT, 
	CONSTRAINT pk_ledger_read PRIMARY KEY (checkpoint, corpus), 
	CONSTRAINT fk_ledger_read_checkpoint FOREIGN KEY(checkpoint) REFERENCES ledger_checkpoint ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_read" VALUES('key-1','key-1','name 1',1,1,1.5);
INSERT INTO "ledger_read" VALUES('key-2','key-2','name 2',2,2,2.5);
CREATE TABLE ledger_run (
	"key" TEXT NOT NULL, 
	id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	project TEXT NOT NULL, 
	experiment TEXT NOT NULL, 
	name TEXT NOT NULL, 
	trainer TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started_at FLOAT NOT NULL, 
	updated_at FLOAT NOT NULL, 
	step BIGINT NOT NULL, 
	tokens BIGINT, 
	blend TEXT, 
	corpora BOOLEAN NOT NULL, 
	host TEXT NOT NULL, 
	folder TEXT NOT NULL, 
	extent TEXT NOT NULL, 
	position TEXT NOT NULL, 
	projection TEXT NOT NULL, 
	shipped_at FLOAT NOT NULL, 
	CONSTRAINT pk_ledger_run PRIMARY KEY ("key")
);
INSERT INTO "ledger_run" VALUES('key-1','id 1','digest 1','project 1','experiment 1','name 1','trainer 1','state 1',1.5,1.5,1,1,'blend 1',1,'host 1','folder 1','extent 1','position 1','projection 1',1.5);
INSERT INTO "ledger_run" VALUES('key-2','id 2','digest 2','project 2','experiment 2','name 2','trainer 2','state 2',2.5,2.5,2,2,'blend 2',1,'host 2','folder 2','extent 2','position 2','projection 2',2.5);
CREATE TABLE ledger_score (
	checkpoint TEXT NOT NULL, 
	task TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	shots BIGINT NOT NULL, 
	value FLOAT, 
	stderr FLOAT, 
	CONSTRAINT pk_ledger_score PRIMARY KEY (checkpoint, task, metric, shots), 
	CONSTRAINT fk_ledger_score_checkpoint FOREIGN KEY(checkpoint) REFERENCES ledger_checkpoint ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_score" VALUES('key-1','key-1','key-1',1,1.5,1.5);
INSERT INTO "ledger_score" VALUES('key-2','key-2','key-2',2,2.5,2.5);
CREATE TABLE ledger_source (
	"key" TEXT NOT NULL, 
	project TEXT NOT NULL, 
	host TEXT NOT NULL, 
	folder TEXT NOT NULL, 
	seen_at FLOAT NOT NULL, 
	CONSTRAINT pk_ledger_source PRIMARY KEY ("key")
);
INSERT INTO "ledger_source" VALUES('key-1','project 1','host 1','folder 1',1.5);
INSERT INTO "ledger_source" VALUES('key-2','project 2','host 2','folder 2',2.5);
CREATE TABLE ledger_tag (
	"key" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	"by" TEXT NOT NULL, 
	host TEXT, 
	tag TEXT NOT NULL, 
	given BOOLEAN NOT NULL, 
	origin TEXT NOT NULL, 
	CONSTRAINT pk_ledger_tag PRIMARY KEY ("key"), 
	CONSTRAINT fk_ledger_tag_run FOREIGN KEY(run) REFERENCES ledger_run ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_tag" VALUES('key-1','key-1',1.5,'by 1','host 1','tag 1',1,'origin 1');
INSERT INTO "ledger_tag" VALUES('key-2','key-2',2.5,'by 2','host 2','tag 2',1,'origin 2');
CREATE TABLE ledger_unread (
	source TEXT NOT NULL, 
	name TEXT NOT NULL, 
	problem TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	CONSTRAINT pk_ledger_unread PRIMARY KEY (source, name), 
	CONSTRAINT fk_ledger_unread_source FOREIGN KEY(source) REFERENCES ledger_source ("key") ON DELETE CASCADE
);
INSERT INTO "ledger_unread" VALUES('key-1','key-1','problem 1',1.5);
INSERT INTO "ledger_unread" VALUES('key-2','key-2','problem 2',2.5);
CREATE TABLE ledger_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0003');
CREATE INDEX ix_ledger_run_id ON ledger_run (id);
CREATE INDEX ix_ledger_run_project ON ledger_run (project);
CREATE INDEX ix_ledger_run_experiment ON ledger_run (experiment);
CREATE INDEX ix_ledger_run_updated_at ON ledger_run (updated_at);
CREATE INDEX ix_ledger_checkpoint_run ON ledger_checkpoint (run);
CREATE INDEX ix_ledger_checkpoint_digest ON ledger_checkpoint (digest);
CREATE INDEX ix_ledger_note_run ON ledger_note (run);
CREATE INDEX ix_ledger_tag_run ON ledger_tag (run);
CREATE INDEX ix_ledger_promotion_run ON ledger_promotion (run);
CREATE INDEX ix_ledger_score_task_metric_value ON ledger_score (task, metric, value);
COMMIT;
