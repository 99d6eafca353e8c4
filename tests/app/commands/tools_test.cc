// Tests the commands doctor, inspect, tokenize and generate by running the whole program.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/commands/findings.h"
#include "data/safetensors/safetensors.h"
#include "offload/scratch_folder.h"
#include "tests/app/support_app.h"
#include "trainer/node/calibration.h"

namespace spillway::app::tools_test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

std::string whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Writes a file with metadata and one F32 tensor "w" of shape [2, 3], and returns its path.
std::string small_safetensors(const fs::path& path) {
  data::SafetensorsWriter writer(path, {{.name = "w", .dtype = DType::f32, .shape = {2, 3}}}, {{"format", "pt"}});
  const std::vector<float> values(6, 1.5f);
  writer.write(writer.tensors().front(), 0, std::as_bytes(std::span(values)));
  writer.finish();
  return path.string();
}

TEST(Doctor, SaysOneLineAThing) {
  const Outcome outcome = run_app({"doctor"}, FakeHost().host());
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.err, "");
  for (const char* piece : {"cores", "8 granted, bounded by affinity", "instruction set", "memory",
                            "11.7 GiB granted, bounded by MemAvailable", "memlock", "I/O engine", "scratch", "GPU", "launcher"}) {
    EXPECT_TRUE(has(outcome.out, piece)) << piece << " in:\n" << outcome.out;
  }
  EXPECT_FALSE(has(outcome.out, "\033["));
}

TEST(Doctor, SaysWhatSetsTheThreads) {
  FakeHost fake;
  fake.env("OMP_NUM_THREADS", "3").env("GOMP_CPU_AFFINITY", "2-5").env("OMP_PROC_BIND", "close");
  const Outcome set = run_app({"doctor"}, fake.host());
  for (const char* piece :
       {"green  threads", "3 on CPUs 2-5", "OMP_NUM_THREADS=3", "GOMP_CPU_AFFINITY=2-5", "OMP_PROC_BIND=close is not used"})
    EXPECT_TRUE(has(set.out, piece)) << piece << " in:\n" << set.out;
  const Outcome wrong = run_app({"doctor"}, FakeHost().env("OMP_NUM_THREADS", "many").host());
  EXPECT_EQ(wrong.status, 0);
  EXPECT_TRUE(has(wrong.out, "yellow threads")) << wrong.out;
  EXPECT_TRUE(has(wrong.out, "8 on CPUs 0-7 (OMP_NUM_THREADS=many is not used: expected")) << wrong.out;
}

TEST(Doctor, RedIsExitThreeWithTheCure) {
  const Outcome poor = run_app({"doctor"}, FakeHost().env("SLURM_MEM_PER_NODE", "400").host());
  EXPECT_EQ(poor.status, 3);
  EXPECT_TRUE(has(poor.out, "red    memory")) << poor.out;
  EXPECT_TRUE(has(poor.out, "--mem")) << poor.out;
  const Outcome missing = run_app({"doctor", "--nvme", "/no/such/place"}, FakeHost().host());
  EXPECT_EQ(missing.status, 3) << missing.out;
  EXPECT_EQ(run_app({"doctor", "--nvme", "/no/such/place", "--login"}, FakeHost().host()).status, 0);
}

TEST(Doctor, LooksAtScratchPaths) {
  const TemporaryFolder folder;
  const Outcome given = run_app({"doctor", "--nvme", folder.path().string() + ":1MiB"}, FakeHost().host());
  EXPECT_TRUE(has(given.out, "scratch " + folder.path().string())) << given.out;
  EXPECT_TRUE(has(given.out, "free of")) << given.out;
  EXPECT_EQ(run_app({"doctor", "--nvme", folder.path().string() + ":900000T"}, FakeHost().host()).status, 3);
  const Outcome slurm = run_app({"doctor"}, FakeHost().env("SLURM_TMPDIR", folder.path().string()).env("SLURM_JOB_ID", "7").host());
  EXPECT_TRUE(has(slurm.out, "scratch " + folder.path().string())) << slurm.out;
  EXPECT_TRUE(has(slurm.out, "job 7")) << slurm.out;
}

TEST(Doctor, ReclaimsWhatDeadRunsLeft) {
  const TemporaryFolder folder;
  offload::ScratchFolder(folder.path(), "dead").keep();
  folder.write("spillway-dead/state", std::string(8192, 'x'));
  const std::vector<std::string> look = {"doctor", "--nvme", folder.path().string()};
  const Outcome seen = run_app(look, FakeHost().host());
  ASSERT_TRUE(has(seen.out, "spillway-dead")) << seen.out;
  EXPECT_TRUE(has(seen.out, "yellow orphan")) << seen.out;
  EXPECT_TRUE(has(seen.out, "--reclaim")) << seen.out;
  EXPECT_TRUE(fs::exists(folder.path() / "spillway-dead"));
  const Outcome removed = run_app({"doctor", "--reclaim", "--nvme", folder.path().string()}, FakeHost().host());
  EXPECT_TRUE(has(removed.out, "removed")) << removed.out;
  EXPECT_FALSE(fs::exists(folder.path() / "spillway-dead"));
  EXPECT_FALSE(has(run_app(look, FakeHost().host()).out, "orphan"));
}

// doctor --reclaim deletes no folder only because it is named like a run's scratch folder, even if the folder contains an "owner" file.
TEST(Doctor, ReclaimsNothingThatNoRunMade) {
  const TemporaryFolder folder;
  folder.write("spillway-0.1.0-linux-x86_64/bin/spillway", "a bundle");
  folder.write("spillway-notes/owner", "me\n");
  const Outcome outcome = run_app({"doctor", "--reclaim", "--nvme", folder.path().string()}, FakeHost().host());
  EXPECT_FALSE(has(outcome.out, "orphan")) << outcome.out;
  EXPECT_TRUE(fs::exists(folder.path() / "spillway-0.1.0-linux-x86_64/bin/spillway"));
  EXPECT_TRUE(fs::exists(folder.path() / "spillway-notes/owner"));
}

TEST(Doctor, NamesTheBf16UnitsAndWhatBenchMeasured) {
  const TemporaryFolder cache;
  FakeHost fake;
  fake.env("XDG_CACHE_HOME", cache.path().string());
  EXPECT_TRUE(has(run_app({"doctor"}, fake.host()).out, "AVX512_BF16 unknown")) << "without /proc/cpuinfo";
  fake.file("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sse\n");
  const Outcome first = run_app({"doctor"}, fake.host());
  EXPECT_TRUE(has(first.out, "AVX512_BF16 yes, AMX_BF16 no")) << first.out;
  EXPECT_TRUE(has(first.out, "yellow bench")) << first.out;
  EXPECT_TRUE(has(first.out, "until spillway bench has run")) << first.out;
  save_bench_rows({{.name = "memory.axpy", .path = "", .value = 3e10, .unit = "bytes/s", .ceiling = {}, .threads = 2}}, fake.host());
  const Outcome partly = run_app({"doctor"}, fake.host());
  EXPECT_TRUE(has(partly.out, "bench            memory 30.0 GB/s, on 2 threads")) << partly.out;
  std::ofstream(calibration_file(fake.host())) << "{";
  const Outcome wrong = run_app({"doctor"}, fake.host());
  EXPECT_EQ(wrong.status, 0);
  EXPECT_TRUE(has(wrong.out, "not usable: [calibration]")) << wrong.out;
}

TEST(Doctor, ReclaimWithoutAPathSaysSo) {
  const Outcome outcome = run_app({"doctor", "--reclaim"}, FakeHost().host());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(has(outcome.out, "give it with --nvme PATH")) << outcome.out;
}

// doctor lists each scratch folder that a dead run left, by name, with its size and age.
TEST(Doctor, OrphansHaveASizeAndAnAge) {
  const TemporaryFolder folder;
  for (const char* run : {"a", "b"}) offload::ScratchFolder(folder.path(), run).keep();
  offload::make_aside(folder.path() / "spillway-b", 1);
  folder.write("spillway-a/state", std::string(1 << 20, 'x'));
  const Outcome outcome = run_app({"doctor", "--nvme", folder.path().string()}, FakeHost().host());
  EXPECT_TRUE(has(outcome.out, "spillway-a: 1.00 MiB, ")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, " old, run=a host=")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "spillway-b: ")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "spillway-b.aside-0000000000000001: ")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "a later start that matches it")) << outcome.out;
}

TEST(Doctor, Json) {
  const Outcome outcome = run_app({"doctor", "--json"}, FakeHost().host());
  EXPECT_TRUE(outcome.out.starts_with("[\n"));
  EXPECT_TRUE(has(outcome.out, "\"name\": \"cores\"")) << outcome.out;
}

TEST(Doctor, FindingsOfAFakeNode) {
  const auto findings = look_at_cluster(FakeHost().env("SLURM_NTASKS", "4").env("SLURM_JOB_ID", "9").host());
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[1].level, Level::red);
  EXPECT_TRUE(has(findings[1].cure, "use srun"));
  EXPECT_EQ(look_at_gpu(FakeHost().host()).name, "GPU");
}

TEST(Inspect, Safetensors) {
  const TemporaryFolder folder;
  const std::string file = small_safetensors(folder.path() / "x.safetensors");
  const Outcome text = run_app({"inspect", file});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* piece : {"kind: safetensors", "elements: 6", "data_bytes: 24 B", "format: pt", "w     f32    [2,3]  24 B"}) {
    EXPECT_TRUE(has(text.out, piece)) << piece << " in:\n" << text.out;
  }
  const Outcome json = run_app({"inspect", file, "--json"});
  EXPECT_TRUE(has(json.out, "\"data_bytes\": 24")) << json.out;
}

TEST(Inspect, ModelRunAndCheckpoint) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run", checkpoint = run / "checkpoints" / "step-00000007";
  folder.write("run/config.json", R"({"model": "gpt2-tiny", "seed": 3})");
  folder.write("run/metrics.jsonl",
               "{\"step\": 6, \"loss\": 2.5}\n{\"step\": 7, \"loss\": 2.25, \"tier_bytes\": {\"host\": 2048}}\n{\"step\": 8, \"lo");
  folder.write("run/checkpoints/step-00000007/manifest.json", R"({"format": 1, "step": 7, "updates": 7, "cursor": 70, "tokens": 700})");
  folder.write("run/checkpoints/step-00000009/model.safetensors", "half");
  small_safetensors(checkpoint / "model.safetensors");
  const Outcome of_run = run_app({"inspect", run.string()});
  EXPECT_EQ(of_run.status, 0) << of_run.err;
  for (const char* piece :
       {"kind: run", "seed: 3", "loss: 2.25", "host: 2.00 KiB", "step-00000007  7        700", "step-00000009  damaged  damaged"})
    EXPECT_TRUE(has(of_run.out, piece)) << piece << " in:\n" << of_run.out;
  EXPECT_LT(of_run.out.find("step-00000009"), of_run.out.find("seed: 3")) << "what one looks for first stands first";
  const Outcome of_checkpoint = run_app({"inspect", checkpoint.string()});
  for (const char* piece : {"kind: checkpoint", "tokens: 700", "model.safetensors  1        6"}) {
    EXPECT_TRUE(has(of_checkpoint.out, piece)) << piece << " in:\n" << of_checkpoint.out;
  }
}

// Of a text, inspect counts lines, bytes, tokens and rows, and names a command that trains on it.
TEST(Inspect, Text) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a b.txt", "one line\nand another\nthe last has no end");
  const Outcome json = run_app({"inspect", file, "--sequence-length", "8", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const auto about = nlohmann::json::parse(json.out);
  EXPECT_EQ(about["kind"], "text");
  EXPECT_EQ(about["lines"], 3);
  EXPECT_EQ(about["bytes"], 40);
  EXPECT_EQ(about["tokens"], 40) << "without a tokenizer each byte is a token";
  EXPECT_EQ(about["rows_per_epoch"], 4) << "of 8 tokens and the target of the last one, which the next row begins with";
  EXPECT_EQ(about["to_train"], "spillway train --model gpt2-tiny --data '" + file + "'");
}

TEST(Inspect, WhatCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_app({"inspect", "/no/such/file"}).status, 4);
  EXPECT_EQ(run_app({"inspect", folder.path().string()}).status, 2);
  EXPECT_EQ(run_app({"inspect", folder.write("a.csv", "x")}).status, 2);
  EXPECT_EQ(run_app({"inspect", folder.write("a.safetensors", "not one")}).status, 4);
  folder.write("c/manifest.json", "{");
  EXPECT_EQ(run_app({"inspect", (folder.path() / "c").string()}).status, 4);
}

TEST(Tokenize, TextToTokensAndBack) {
  const TemporaryFolder folder;
  std::string text = "In the beginning\n\xc3\xa4\xff end";
  for (int i = 0; i < 5000; ++i) text += "and it was so. ";
  const std::string source = folder.write("t.txt", text), target = (folder.path() / "t.bin").string();
  const Outcome made = run_app({"tokenize", "--tokenizer", "bytes", "--data", source, "--out", target});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(has(made.out, std::to_string(text.size()) + " tokens, 2 bytes each")) << made.out;
  EXPECT_EQ(whole(target).size(), 1024 + 2 * text.size());
  EXPECT_EQ(run_app({"tokenize", "--decode", target}).out, text);
  const Outcome looked = run_app({"inspect", target});
  for (const std::string& piece : {std::string("kind: tokens"), "tokens: " + std::to_string(text.size()), std::string("highest_id: 255"),
                                   std::string("first_ids: [73,110,32,")}) {
    EXPECT_TRUE(has(looked.out, piece)) << piece << " in:\n" << looked.out;
  }
  EXPECT_TRUE(has(run_app({"tokenize", "--data", source, "--out", target, "--json"}).out, "\"bytes_per_token\": 2"));
}

TEST(Tokenize, Refusals) {
  const TemporaryFolder folder;
  const std::string source = folder.write("t.txt", "abc");
  const Outcome same = run_app({"tokenize", "--data", source, "--out", source});
  EXPECT_EQ(same.status, 2) << same.err;
  EXPECT_EQ(whole(source), "abc");
  EXPECT_NE(run_app({"tokenize", "--data", "/no/such.txt", "--out", (folder.path() / "x.bin").string()}).status, 0);
  EXPECT_FALSE(fs::exists(folder.path() / "x.bin"));
  EXPECT_EQ(run_app({"tokenize", "--tokenizer", "gpt2", "--data", source, "--out", "x.bin"}).status, 2);
}

// A model path that does not exist gets an error that says what was expected. Only a bare name may be meant for a model of the Hub.
TEST(Generate, SaysWhatWasExpectedOfAPathThatIsNotThere) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.txt", "x");
  for (const std::string& model : {std::string("runs/gpt2-tiny-01234567"), std::string("/no/such/run"), std::string("nothing"), file}) {
    for (const std::vector<std::string>& args : {std::vector<std::string>{"generate", "--model", model, "--prompt", "a"},
                                                 std::vector<std::string>{"export", model, "--out", (folder.path() / "out").string()}}) {
      const Outcome outcome = run_app(args, FakeHost().host());
      EXPECT_EQ(outcome.status, 2) << outcome.err;
      EXPECT_TRUE(has(outcome.err, "[model] expected a run folder")) << outcome.err;
      EXPECT_TRUE(has(outcome.err, model == file ? "which is a file" : "which does not exist")) << outcome.err;
      EXPECT_EQ(has(outcome.err, "hf download"), model == "nothing") << outcome.err;
    }
  }
  folder.write("run/config.json", R"({"model": "gpt2-tiny"})");
  folder.write("run/metrics.jsonl", "");
  const Outcome early = run_app({"generate", "--model", (folder.path() / "run").string(), "--prompt", "a"}, FakeHost().host());
  EXPECT_EQ(early.status, 4);
  EXPECT_TRUE(has(early.err, "saved no checkpoint yet")) << early.err;
}

// If the reader of stdout is gone or the disk is full, a command fails with an I/O error instead of reporting success.
TEST(Entry, ResultsThatCannotBeWrittenAreAFailure) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  const std::vector<std::string> args = {"--version"};
  EXPECT_EQ(run(args, out, err), 5);
  EXPECT_TRUE(has(err.str(), "[stdout]"));
}

}  // namespace
}  // namespace spillway::app::tools_test
