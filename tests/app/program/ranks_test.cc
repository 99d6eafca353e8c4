// Tests training on data-parallel ranks that are threads of this process. All ZeRO stages and tiers give bitwise the same results, another
// number of ranks can load a checkpoint, and an error of one rank ends all ranks with one message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "app/console/signals.h"
#include "parallel/layout/layout.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/node/stop.h"

namespace spillway::app::ranks_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;
using Json = nlohmann::json;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct Ranks : testing::Test {
  TemporaryFolder folder;
  std::string text;
  Ranks() {
    std::string words;
    u32 state = 1;
    for (int i = 0; i < 20000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    text = folder.write("text.txt", words);
  }

  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  // Returns the flags of a training. Flags in `more` come last and override earlier ones.
  Args train(const std::string& out, int steps, const Args& more) const {
    Args all = {"--model",       "llama-tiny",  "--data",          text,    "--sequence-length",   "16",    "--learning-rate", "1e-3",
                "--lr-schedule", "constant",    "--warmup-steps",  "1",     "--gradient-clipping", "2.5",   "--threads",       "1",
                "--nvme",        at("scratch"), "--device-memory", "64MiB", "--host-memory",       "64MiB", "--out",           at(out)};
    for (const Args& pair : {Args{"--steps", std::to_string(steps)}, more}) {
      for (size_t i = 0; i + 1 < pair.size(); i += 2) {
        const auto before = std::find(all.begin(), all.end(), pair[i]);
        if (before != all.end()) all.erase(before, before + 2);
        all.insert(all.end(), {pair[i], pair[i + 1]});
      }
    }
    return all;
  }
  static Args places(const std::string& parameters, const std::string& gradients, const std::string& optimizer) {
    return {"--place-parameters", parameters, "--place-gradients", gradients, "--place-optimizer", optimizer};
  }
  static void expect_all_well(const std::vector<Outcome>& ranks) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.err;
    for (size_t r = 1; r < ranks.size(); ++r) EXPECT_EQ(ranks[r].out + ranks[r].err, "") << "rank " << r << " speaks";
  }
  std::vector<Json> metrics(const std::string& out) const {
    std::ifstream file(fs::path(at(out)) / "metrics.jsonl");
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
    return rows;
  }
};

// Tests of RanksRelease compare numbers, in release builds only. Tests of failures and remaining files also run under the sanitizers.
using RanksRelease = Ranks;

TEST_F(RanksRelease, EveryStageFromEveryTierGivesTheSameBits) {
  const std::map<std::string, std::vector<Args>> cells = {
      {"gpt2-tiny",
       {Args{"--zero-stage", "1", "--optimizer-overlap", "forward"} + places("device", "host", "nvme"),
        Args{"--zero-stage", "2", "--optimizer-overlap", "backward"} + places("host", "device", "host"),
        Args{"--zero-stage", "3", "--pipeline-schedule", "vertical"} + places("nvme", "nvme", "nvme")}},
      {"llama-tiny",
       {Args{"--zero-stage", "3", "--recompute", "block"} + places("device", "device", "device"),
        Args{"--zero-stage", "0", "--place-activations", "host"} + places("host", "nvme", "device"), Args{"--zero-stage", "auto"}}}};
  for (const auto& [model, of_model] : cells) {
    const Args batch = {"--model", model, "--gradient-accumulation-steps", "2", "--validation-fraction", "0.01"};
    const std::string plain = model + "-plain";
    expect_all_well(train_on(3, train(plain, 4, batch + places("device", "device", "device") + Args{"--zero-stage", "0"})));
    const std::vector<std::string> want = numbers_in(at(plain));
    const std::string state = state_in(at(plain), 4);
    ASSERT_EQ(want.size(), 4u);
    ASSERT_GT(state.size(), 1'000'000u);
    for (size_t c = 0; c < of_model.size(); ++c) {
      const std::string out = model + std::to_string(c);
      expect_all_well(train_on(3, train(out, 4, batch + of_model[c])));
      EXPECT_EQ(numbers_in(at(out)), want) << out;
      EXPECT_TRUE(state_in(at(out), 4) == state) << out;
    }
  }
}

// The bytes exchanged between the ranks equal those of the plan, and each rank holds only its shard of the state.
TEST_F(RanksRelease, MeasuredBytesAreThePlans) {
  std::vector<i64> device_bytes;
  for (const char* stage : {"0", "1", "2", "3"}) {
    const Args flags = Args{"--zero-stage",        stage,  "--optimizer-overlap", "none",   "--trace",     at("trace.json"),
                            "--trace-steps",       "2:2",  "--place-activations", "device", "--recompute", "none",
                            "--pipeline-schedule", "1f1b", "--prefetch",          "1"} +
                       places("device", "device", "device");
    expect_all_well(train_on(4, train(std::string("run") + stage, 2, flags)));
    Args plan = train("unused", 2, flags + Args{"--ranks", "4"});
    plan.insert(plan.begin(), {"plan", "--json"});
    const Outcome planned = run_app(plan);
    ASSERT_EQ(planned.status, 0) << planned.err;
    const Json want = Json::parse(planned.out), got = metrics(std::string("run") + stage).back();
    EXPECT_EQ(got["exchanged_bytes"], want["exchanged_bytes_per_step"]) << "stage " << stage;
    EXPECT_EQ(got["peak_bytes"]["host"], want["total_bytes"]["host"]);
    EXPECT_EQ(got["peak_bytes"]["device"], want["total_bytes"]["device"]);
    i64 resting = 0;
    for (const Json& row : want["rows"]) {
      const std::string what = row["what"];
      if (what == "weights" || what == "gradients" || what.starts_with("optimizer")) resting += row["bytes"]["device"].get<i64>();
    }
    device_bytes.push_back(resting);
  }
  std::set<int> traced;
  std::ifstream file(at("trace.json"));
  const Json trace = Json::parse(file);
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") traced.insert(event["pid"].get<int>());
  }
  EXPECT_EQ(traced, (std::set<int>{1, 2, 3, 4}));
  const Outcome status = run_app({"status", at("run3")});
  EXPECT_NE(status.out.find("finished: step 2 of 2 on 4 ranks"), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("slowest: rank "), std::string::npos) << status.out;
  // Training takes 16 bytes a parameter: 4 for weights, 4 for gradients, 8 for moments.
  // The shard of one of four ranks is a quarter, plus at most one tile of each group.
  const i64 whole = device_bytes[0], slack = 16 * 6 * parallel::kTileElems;
  EXPECT_NEAR(static_cast<double>(device_bytes[1]), 0.5 * static_cast<double>(whole) + 0.25 * 0.5 * static_cast<double>(whole), slack);
  EXPECT_NEAR(static_cast<double>(device_bytes[2]), 0.25 * static_cast<double>(whole) + 0.25 * 0.75 * static_cast<double>(whole), slack);
  EXPECT_NEAR(static_cast<double>(device_bytes[3]), 0.25 * static_cast<double>(whole), slack);
}

TEST_F(RanksRelease, TheStageIsTheLowestThatFitsUnlessAHigherOneIsFaster) {
  const auto plan = [&](const std::string& device, const std::string& stage, bool json) {
    const Outcome outcome = run_app({"plan", "--ranks", "4", "--model", "llama-tiny", "--sequence-length", "32", "--host-memory", "16MiB",
                                     "--device-memory", device, "--zero-stage", stage, json ? "--json" : "--quiet"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const Json roomy = Json::parse(plan("64MiB", "auto", true));  // with this budget every ZeRO stage fits
  for (const Json& one : roomy["alternatives"])
    EXPECT_GE(one["predicted_step_s"].get<double>(), 0.98 * roomy["predicted_step_s"].get<double>()) << one;
  EXPECT_EQ(Json::parse(plan("64MiB", "3", true))["zero_stage"], 3);
  EXPECT_GE(Json::parse(plan("6MiB", "auto", true))["zero_stage"], 1);
  EXPECT_NE(plan("6MiB", "auto", false).find("; stage 0 does not fit"), std::string::npos);
  EXPECT_NE(plan("6MiB", "auto", false).find("per rank, of 4"), std::string::npos);
}

// With a learning rate of 0 all steps use the same weights. Losses are then sums in another order in fp64. A gradient
// summed over n parts in another order in fp32 differs by at most (n - 1) u times the sum of its parts' magnitudes. Its
// norm differs by at most (n - 1) u times the sum of the parts' norms, which a run of single micro-batches measures.
TEST_F(RanksRelease, OtherNumbersOfRanksDifferByTheOrderOfSums) {
  constexpr int kBatch = 8, kSteps = 3;
  const Args frozen = {"--learning-rate", "0", "--data-order", "sequential", "--validation-fraction", "0.02", "--validation-steps", "5"};
  const auto run = [&](const std::string& out, int ranks, int batch, int steps) {
    expect_all_well(train_on(ranks, train(out, steps, frozen + Args{"--global-batch-size", std::to_string(batch), "--zero-stage", "2"})));
    return metrics(out);
  };
  const std::vector<Json> single = run("single", 1, 1, kBatch * kSteps), one = run("one", 1, kBatch, kSteps);
  int other_bits = 0;
  for (const int ranks : {2, 4}) {
    const std::vector<Json> some = run("some" + std::to_string(ranks), ranks, kBatch, kSteps);
    for (size_t s = 0; s < kSteps; ++s) {
      double parts = 0;
      for (size_t k = 0; k < kBatch; ++k) parts += single[s * kBatch + k]["grad_norm"].get<double>() / kBatch;
      const double loss = one[s]["loss"], norm = one[s]["grad_norm"];
      EXPECT_LE(std::abs(some[s]["loss"].get<double>() - loss), 2 * kBatch * 16 * std::exp2(-53) * loss);
      EXPECT_LE(std::abs(some[s]["grad_norm"].get<double>() - norm), 2 * (kBatch - 1) * std::exp2(-24) * parts);
      other_bits += some[s]["grad_norm"] != one[s]["grad_norm"];
    }
    EXPECT_EQ(some.back()["validation_loss"], one.back()["validation_loss"]) << "the same to the bit";
  }
  EXPECT_GT(other_bits, 0) << "nothing was summed in another order";
}

// A checkpoint that four ranks wrote in shards loads on other numbers of ranks, ZeRO stages and tiers with every bit.
TEST_F(RanksRelease, AStateIsTheSameOnOtherRanksAndTiers) {
  for (const Args& kind : {Args{"--precision", "fp32"}, Args{"--precision", "bf16", "--master-weights", "split"}}) {
    const std::string name = kind[1], batch = "12";
    const Args all = kind + Args{"--global-batch-size", batch};
    expect_all_well(train_on(4, train(name, 3, all + places("nvme", "nvme", "nvme") + Args{"--zero-stage", "3"})));
    const std::string want = state_in(at(name), 3);
    ASSERT_GT(want.size(), 1'000'000u);
    const std::vector<std::pair<int, Args>> onto = {{1, places("host", "device", "host")},
                                                    {3, places("device", "device", "device") + Args{"--zero-stage", "2"}},
                                                    {2, places("host", "device", "nvme") + Args{"--zero-stage", "0"}},
                                                    {4, places("nvme", "host", "device") + Args{"--zero-stage", "1"}}};
    for (const auto& [ranks, placed] : onto) {
      const std::string again = name + "-on-" + std::to_string(ranks);
      save_again(at(name), 3, ranks, train(again, 3, all + placed), at(again));
      EXPECT_TRUE(state_in(at(again), 3) == want) << again;
    }
  }
}

// One run continues on changing numbers of ranks, tiers and ZeRO stages. After each load the state equals its checkpoint to the bit. The
// next loss is a sum of equal terms in another order, so it lies within the rounding bound of the loss that the earlier ranks would have
// had.
TEST_F(RanksRelease, ARunGoesOnAnywhereWithItsBits) {
  struct Hop {
    int ranks;
    Args placed;
  };
  const std::vector<Hop> hops = {
      {4, places("nvme", "nvme", "nvme") + Args{"--zero-stage", "3"}},
      {1, places("host", "host", "host")},
      {4, places("host", "device", "nvme") + Args{"--pipeline-stages", "2", "--pipeline-schedule", "1f1b", "--zero-stage", "2"}},
      {3, places("device", "device", "device") + Args{"--zero-stage", "1"}}};
  constexpr int kBatch = 12, kSteps = 3;
  for (const Args& kind : {Args{"--precision", "fp32"}, Args{"--precision", "bf16", "--master-weights", "split"}}) {
    const Args all = kind + Args{"--global-batch-size", std::to_string(kBatch)};
    const std::string run = kind[1];
    const auto go_on = [&](const std::string& out, size_t hop, int steps) {
      expect_all_well(train_on(hops[hop].ranks, train(out, steps, all + hops[hop].placed)));
    };
    go_on(run, 0, kSteps);
    for (size_t hop = 1; hop < hops.size(); ++hop) {
      const int step = kSteps + static_cast<int>(hop) - 1;
      const std::string again = run + "-again" + std::to_string(hop), before = run + "-before" + std::to_string(hop);
      save_again(at(run), step, hops[hop].ranks, train(again, step, all + hops[hop].placed), at(again));
      ASSERT_GT(state_in(at(run), step).size(), 1'000'000u);
      EXPECT_TRUE(state_in(at(again), step) == state_in(at(run), step)) << again;
      fs::copy(at(run), at(before), fs::copy_options::recursive);
      go_on(before, hop - 1, step + 1);
      go_on(run, hop, step + 1);
      const double loss = metrics(run).back()["loss"], same = metrics(before).back()["loss"];
      EXPECT_LE(std::abs(loss - same), 2 * kBatch * 16 * std::exp2(-53) * same) << again;
    }
    EXPECT_EQ(metrics(run).size(), kSteps + hops.size() - 1);
  }
}

// The global batch stays the same when the number of ranks changes; the number of accumulated micro-batches follows from both.
TEST_F(Ranks, ARunGoesOnWithOtherNumbersOfRanks) {
  const Args batch = {"--gradient-accumulation-steps", "3"};
  expect_all_well(train_on(4, train("run", 2, batch)));
  for (const auto& [ranks, steps] : {std::pair(1, 4), {3, 6}}) {
    const std::vector<Outcome> outcomes = train_on(ranks, train("run", steps, batch));
    expect_all_well(outcomes);
    EXPECT_NE(outcomes[0].err.find("continues at step " + std::to_string(steps - 2)), std::string::npos) << outcomes[0].err;
    EXPECT_NE(outcomes[0].err.find(ranks == 1 ? "the run was on 4 ranks" : "the run was on 1 rank"), std::string::npos) << outcomes[0].err;
  }
  for (const Json& row : metrics("run")) {
    EXPECT_EQ(row["samples"], 12);
    EXPECT_EQ(row["tokens"], 12 * 16);
  }
  EXPECT_EQ(metrics("run").size(), 6u);
  const std::vector<Outcome> refused = train_on(5, train("run", 8, batch));
  EXPECT_EQ(refused[0].status, 2);
  EXPECT_NE(refused[0].err.find("global batch of 12 does not divide over 5 data-parallel ranks"), std::string::npos) << refused[0].err;
  EXPECT_NE(refused[0].err.find("legal numbers of ranks: 1, 2, 3, 4, 6, 12"), std::string::npos) << refused[0].err;
}

// All ranks must run with the program version and the flags of rank 0. A different flag is named in one message.
TEST_F(Ranks, OtherFlagsOnOneRankAreNamed) {
  const std::vector<Outcome> ranks = train_on(3, train("run", 2, {}), {{}, {}, {"--seed", "5"}});
  for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 2);
  EXPECT_NE(ranks[0].err.find("`seed` 1337 on rank 0 and 5 on rank 2"), std::string::npos) << ranks[0].err;
  EXPECT_EQ(ranks[1].err + ranks[2].err, "") << "one message";
  EXPECT_FALSE(fs::exists(at("run")));
  expect_all_well(train_on(2, train("run", 2, {}), {{}, {"--io-engine", "pread"}}));
}

// One rank alone, all ranks alike, or rank 0 alone fails before training. In each case one message is printed.
TEST_F(Ranks, AnErrorBeforeTrainingIsOneMessageOfAll) {
  const auto expect = [](const std::vector<Outcome>& ranks, int status, const std::string& message) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, status) << rank.err;
    const std::string& said = ranks[0].err;  // on a slow machine, progress lines come before the message
    const size_t signs = said.rfind(" so far\n");
    EXPECT_TRUE(said.substr(signs == said.npos ? 0 : signs + 8).starts_with(message)) << said;
    for (size_t r = 1; r < ranks.size(); ++r) EXPECT_EQ(ranks[r].err, "");
  };
  expect(train_on(3, train("run", 2, {"--data", at("nothing.txt")})), 4, "[data] ");
  expect(train_on(2, train("run", 2, {}), {{}, {"--nvme", "/proc/nowhere"}}), 2, "rank 1 on host here: [");
  expect(train_on(2, train("run", 2, {"--device-memory", "1MiB"})), 3, "rank 0 on host here: [plan] it does not fit");
  expect(train_on(2, train("run", 2, {"--keep", "1000000000"})), 3, "rank 0 on host here: [checkpoint] expected room");
  EXPECT_FALSE(fs::exists(at("run")));
}

// An error occurs in the middle of a step: the rank whose scratch file was truncated
// fails with an error about its file, and the other rank reports that this rank failed.
TEST_F(Ranks, AnErrorInMidStepReachesTheOthers) {
  std::thread vandal([&] {
    while (metrics("run").size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const auto& entry : fs::directory_iterator(at("scratch"))) {
      if (!entry.path().string().ends_with("-rank1")) continue;
      for (const auto& file : fs::directory_iterator(entry)) {
        if (file.file_size() > 100'000) fs::resize_file(file, 100'000);
      }
    }
  });
  const std::vector<Outcome> ranks = train_on(2, train("run", 2000, places("nvme", "device", "nvme") + Args{"--zero-stage", "2"}));
  vandal.join();
  EXPECT_NE(ranks[1].err.find("rank 1 on host here: ["), std::string::npos) << ranks[1].err;
  EXPECT_TRUE(ranks[1].status == 4 || ranks[1].status == 5) << ranks[1].status;
  EXPECT_EQ(ranks[0].status, 6) << ranks[0].err;
  EXPECT_NE(ranks[0].err.find("rank 1 gave up"), std::string::npos) << ranks[0].err;
  // Both ranks keep their scratch files for a restart. The files are the only state of
  // the run, so a start with another number of ranks is refused and changes nothing.
  EXPECT_EQ(std::distance(fs::directory_iterator(at("scratch")), {}), 2);
  const std::vector<Outcome> alone = train_on(1, train("run", 3, places("nvme", "device", "nvme")));
  EXPECT_EQ(alone[0].status, 2);
  EXPECT_NE(alone[0].err.find("another number of ranks"), std::string::npos) << alone[0].err;
  EXPECT_EQ(std::distance(fs::directory_iterator(at("scratch")), {}), 2);
}

// A stop signal ends all ranks after the same step, whose state is saved. The same command then continues with the numbers of a run without
// stop.
TEST_F(Ranks, AStopIsAgreedOn) {
  const auto run = [&](const std::string& out, int steps) { return train_on(2, train(out, steps, {"--zero-stage", "1"})); };
  install_stop_handlers();
  std::thread stopper([&] {
    while (metrics("run").size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::raise(SIGUSR2);
  });
  const std::vector<Outcome> stopped = run("run", 100'000);
  stopper.join();
  clear_stop();
  for (const Outcome& rank : stopped) EXPECT_EQ(rank.status, 75) << rank.err;
  EXPECT_NE(stopped[0].err.find("stopped by SIGUSR2 of rank"), std::string::npos) << stopped[0].err;
  const auto at_step = static_cast<int>(metrics("run").size());
  expect_all_well(run("run", at_step + 2));
  expect_all_well(run("straight", at_step + 2));
  EXPECT_EQ(numbers_in(at("run")), numbers_in(at("straight")));
  EXPECT_TRUE(state_in(at("run"), at_step + 2) == state_in(at("straight"), at_step + 2));
}

}  // namespace
}  // namespace spillway::app::ranks_test
