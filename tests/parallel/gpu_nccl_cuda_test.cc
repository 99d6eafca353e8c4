// Ranks whose GPUs talk to each other over NCCL: all numbers are the bits of one rank alone, as they are through host memory, and nothing
// goes through host memory; a rank that fails or does not come ends all, who know of it.
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "base/error.h"
#include "device/memory_pool.h"
#include "models/model.h"
#include "parallel/communicator_local.h"
#include "parallel/nccl_communicator_cuda.h"
#include "parallel/nccl_exchange.h"
#include "support/diagonal.h"
#include "support_gpu_run.h"
#include "support_gpus.h"
#include "support_sparse_batch.h"

#ifdef SPILLWAY_HAS_NCCL
namespace spillway::test {
namespace {

using parallel::GpuExchange;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;
constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;

// What the ranks asked for.
struct Calls {
  std::atomic<i64> gathers = 0, sums = 0, sent = 0, received = 0;
};

class Counting final : public GpuExchange {
 public:
  Counting(std::unique_ptr<GpuExchange> inner, Calls& calls) : inner_(std::move(inner)), calls_(calls) {}

  void gather(const GpuQueue& queue, std::span<const std::byte> mine, std::byte* all, const parallel::Dealt& dealt) override {
    ++calls_.gathers;
    inner_->gather(queue, mine, all, dealt);
  }
  void sum_part(const GpuQueue& queue, std::byte* all, DType dtype, const parallel::Dealt& dealt) override {
    ++calls_.sums;
    inner_->sum_part(queue, all, dtype, dealt);
  }
  void sum(const GpuQueue& queue, std::span<std::byte> all, DType dtype) override {
    ++calls_.sums;
    inner_->sum(queue, all, dtype);
  }
  void send(const GpuQueue& queue, std::span<const std::byte> bytes, int to, int tag) override {
    calls_.sent += std::ssize(bytes);
    inner_->send(queue, bytes, to, tag);
  }
  void receive(const GpuQueue& queue, std::span<std::byte> bytes, int from, int tag) override {
    calls_.received += std::ssize(bytes);
    inner_->receive(queue, bytes, from, tag);
  }

 private:
  const std::unique_ptr<GpuExchange> inner_;
  Calls& calls_;
};

class GpuNccl : public GpusTest {
 protected:
  void TearDown() override {
#ifdef NCCL_EMULATED
    EXPECT_EQ(emulated_cuda::nccl_communicators(), 0);
#endif
    GpusTest::TearDown();
  }

  // A buffer of two tiles a rank, so that groups cross in several pieces.
  RunOptions over_nccl(const std::string& preset, int ranks, int stage, i64 micro_batches) {
    RunOptions o = alone(preset, micro_batches);
    o.gpu_to_gpu = true;
    o.ranks = ranks;
    o.zero_stage = stage;
    o.change_plan = [](parallel::Plan& plan) {
      if (plan.exchange_bytes == 0) return;
      const i64 bytes = 2 * plan.scheduling.sharding.ranks * parallel::kTileElems * 4;
      plan.total[0] += bytes - plan.exchange_bytes;
      plan.exchange_bytes = bytes;
    };
    o.wrap_exchange = [this](std::unique_ptr<GpuExchange> inner) { return std::make_unique<Counting>(std::move(inner), calls_); };
    return o;
  }
  static RunOptions alone(const std::string& preset, i64 micro_batches) {
    RunOptions o = small_gpu_run(preset);
    o.model.layers = 1;
    o.sequence_length = 12;
    o.micro_batches = micro_batches;
    o.gradient_clipping = 0.5;
    return o;
  }
  static const RunResult& result_alone(const std::string& preset, i64 micro_batches, DType dtype = DType::f32) {
    static std::map<std::tuple<std::string, i64, DType>, RunResult> all;
    const std::tuple key{preset, micro_batches, dtype};
    if (const auto found = all.find(key); found != all.end()) return found->second;
    RunOptions o = alone(preset, micro_batches);
    o.dtype = dtype;
    return all[key] = train(o);
  }
  static void expect_no_host(const RunResult& r) {
    EXPECT_TRUE(r.plan.gpu_to_gpu);
    EXPECT_TRUE(r.plan.passing_lanes().empty());
    EXPECT_EQ(r.plan.pass_bytes, 0);
    EXPECT_EQ(r.peak_bytes[1], r.plan.total[1]);
    EXPECT_LE(r.peak_bytes[0], r.plan.total[0]);
  }

  Calls calls_;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {{"device", placed(device, device, device, OptimizerOverlap::backward)},
                                       {"host", placed(host, host, host, OptimizerOverlap::none)},
                                       {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::forward)}};
  return all;
}

class GpuNcclZero : public GpuNccl, public testing::WithParamInterface<std::tuple<int, int, size_t>> {};

// Each rank has one of the micro-batches of one rank alone. Three ranks have parts that are not equal.
TEST_P(GpuNcclZero, GivesTheBitsOfOneRank) {
  const auto& [ranks, stage, way] = GetParam();
  const char* preset = (static_cast<size_t>(stage) + way) % 2 ? "gpt2-tiny" : "llama-tiny";
  RunOptions o = over_nccl(preset, ranks, stage, 1);
  ways()[way].change(o);
  const RunResult got = train(o);
  expect_same_run(got, result_alone(preset, ranks));
  expect_no_host(got);
  EXPECT_GT(got.moved.exchanged, 0);
  EXPECT_GT(calls_.sums, 0);
  if (stage > 0) {
    EXPECT_GT(calls_.gathers, 0);
  }
}
std::string zero_name(const testing::TestParamInfo<GpuNcclZero::ParamType>& cell) {
  const auto& [ranks, stage, way] = cell.param;
  return std::to_string(ranks) + "_stage" + std::to_string(stage) + "_" + ways()[way].name;
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuNcclZero, testing::ValuesIn(diagonal(std::vector{2, 3}, range(0, 4), range(size_t{0}, ways().size()))),
                         zero_name);
INSTANTIATE_TEST_SUITE_P(RanksMore, GpuNcclZero,
                         testing::Combine(testing::Values(2, 3), testing::Range(0, 4), testing::Range(size_t{0}, ways().size())),
                         zero_name);

// Through the other interface of the same ranks, said once more without one rank between: bits, and what was exchanged.
TEST_F(GpuNccl, IsHostMemoryToTheBit) {
  RunOptions o = over_nccl("gpt2-tiny", 3, 2, 1);
  o.dtype = DType::bf16;
  const RunResult got = train(o);
  o.gpu_to_gpu = false;
  const RunResult want = train(o);
  EXPECT_GT(want.plan.pass_bytes, 0);
  expect_same_run(got, want);
  EXPECT_EQ(got.moved.exchanged, want.moved.exchanged);
}

struct Dealt {
  std::string name;
  parallel::Pipeline pipeline;
  std::function<void(RunOptions&)> place;
  DType dtype = DType::f32;
};
const std::vector<Dealt>& dealt() {
  static const std::vector<Dealt> all = {
      {"1f1b", {.ranks = 2}, placed(device, device, device, OptimizerOverlap::none)},
      {"gpipe_nvme", {.ranks = 2, .kind = ScheduleKind::gpipe}, placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"zb_h1", {.ranks = 2, .kind = ScheduleKind::zb_h1}, placed(device, host, device, OptimizerOverlap::backward)},
      {"vertical", {.ranks = 2}, [](RunOptions& o) { o.order = Order::vertical, o.activations = host, o.optimizer = nvme; }, DType::bf16},
  };
  return all;
}

class GpuNcclPipelines : public GpuNccl, public testing::WithParamInterface<size_t> {};

TEST_P(GpuNcclPipelines, GiveTheBitsOfOneStage) {
  const Dealt& deal = dealt()[GetParam()];
  RunOptions o = over_nccl("gpt2-tiny", 1, 0, 2);
  o.pipeline = deal.pipeline;
  o.dtype = deal.dtype;
  deal.place(o);
  const RunResult got = train(o);
  expect_same_run(got, result_alone("gpt2-tiny", 2, deal.dtype));
  expect_no_host(got);
  EXPECT_GT(calls_.sent, 0);
  EXPECT_EQ(calls_.sent, calls_.received);
}
INSTANTIATE_TEST_SUITE_P(TwoStages, GpuNcclPipelines, testing::Range(size_t{0}, dealt().size()),
                         [](const auto& cell) { return dealt()[cell.param].name; });

TEST_F(GpuNccl, StagesOfSeveralRanksGiveTheBitsOfOneStage) {
  for (const int stage : {1, 3}) {
    RunOptions o = over_nccl("gpt2-tiny", 2, stage, 1);
    o.pipeline = {.ranks = 2};
    o.overlap = stage == 1 ? OptimizerOverlap::backward : OptimizerOverlap::forward;
    const RunResult got = train(o);
    expect_same_run(got, result_alone("gpt2-tiny", 2));
    expect_no_host(got);
  }
}

TEST_F(GpuNccl, ReductionOfEachMicroBatchGivesTheBitsOfOneRank) {
  constexpr int kRanks = 2;
  RunOptions one = alone("gpt2-tiny", 2 * kRanks);
  one.batches = [=](i64 step, int rank) { return sparse_batch(one, step, rank, kRanks); };
  const RunResult want = train(one);
  for (const int stage : {2, 3}) {
    RunOptions o = over_nccl("gpt2-tiny", kRanks, stage, 2);
    o.reduce_each = true;
    o.batches = [=](i64 step, int rank) { return sparse_batch(o, step, rank, kRanks); };
    const RunResult got = train(o);
    expect_no_host(got);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.weights, want.weights);
    EXPECT_EQ(got.m, want.m);
    EXPECT_EQ(got.v, want.v);
  }
}

// What a run ends with, and how long it took.
struct End {
  std::string said;
  ErrorCode code = ErrorCode::bug;
  double seconds = 0;
};
End end_of(const std::function<void()>& body) {
  const auto began = std::chrono::steady_clock::now();
  End end;
  try {
    body();
    ADD_FAILURE() << "the fault was lost";
  } catch (const Error& e) {
    end.said = e.what(), end.code = e.code();
  }
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return end;
}

// Long before anybody would be given up: of 60 s that ranks wait for each other.
constexpr double kSoon_s = 40;

TEST_F(GpuNccl, AFaultOnOneRankReachesAll) {
  RunOptions o = over_nccl("gpt2-tiny", 2, 3, 1);
  o.pipeline = {.ranks = 2};
  std::atomic<int> loads{0};
  o.batches = [&](i64 step, int rank) -> StepBatch {
    if (loads++ == 5) throw Error(ErrorCode::data, "planted");
    return random_batch(o, step, rank);
  };
  const End end = end_of([&] { train(o); });
  EXPECT_NE(end.said.find("planted"), std::string::npos) << end.said;
  EXPECT_LT(end.seconds, kSoon_s);
}

#ifdef NCCL_EMULATED
// NCCL says that it has failed, on one rank, when its peers have begun what needs it: before it has come to that, or in it.
class GpuNcclFaults : public GpuNccl, public testing::WithParamInterface<std::tuple<const char*, int>> {};

TEST_P(GpuNcclFaults, OfNcclOnOneRankReachAll) {
  const auto& [call, nth] = GetParam();
  RunOptions o = over_nccl("gpt2-tiny", 2, 3, 1);
  std::atomic<int> loads{0};
  o.batches = [&](i64 step, int rank) -> StepBatch {
    if (loads++ == 1) emulated_cuda::fail(call, nth, cudaErrorLaunchFailure);
    return random_batch(o, step, rank);
  };
  const End end = end_of([&] { train(o); });
  EXPECT_NE(end.said.find("nccl"), std::string::npos) << end.said;
  EXPECT_LT(end.seconds, kSoon_s);
}
INSTANTIATE_TEST_SUITE_P(Calls, GpuNcclFaults,
                         testing::Values(std::tuple("ncclGroupEnd", 1), std::tuple("ncclGroupEnd", 6), std::tuple("ncclSend", 3),
                                         std::tuple("ncclCommGetAsyncError", 7), std::tuple("ncclCommGetAsyncError", 40)),
                         [](const auto& cell) {
                           return std::string(std::get<0>(cell.param)) + "_" + std::to_string(std::get<1>(cell.param));
                         });
#endif

// Ranks alone with their ends, each on a thread; what a rank ends with.
std::vector<std::string> on_ranks(int ranks, double timeout_s, const std::function<void(int, parallel::Communicator&)>& body) {
  auto ends = parallel::make_local_communicators(ranks, {.timeout_s = timeout_s});
  std::vector<std::string> said(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  std::atomic<int> running = ranks;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r, *ends[static_cast<size_t>(r)]);
      } catch (const std::exception& e) {
        said[static_cast<size_t>(r)] = e.what();
      }
      for (--running; running > 0;) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // late, not gone
    });
  }
  for (std::thread& t : threads) t.join();
  return said;
}

parallel::Plan plan_of_pair(const nn::Sequential& model, int rank) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.gpu_to_gpu = true;
  o.ranks = 2;
  return make_plan(plan_request(model, o, rank));
}

TEST_F(GpuNccl, ARankThatDoesNotComeIsNamed) {
  for (const bool to_the_exchange : {false, true}) {
    const auto said = on_ranks(2, 0.5, [&](int rank, parallel::Communicator& ranks) {
      const nn::Sequential model = models::build(small_gpu_run("gpt2-tiny").model, DType::f32);
      const parallel::Plan plan = plan_of_pair(model, rank);
      MemoryPool pool("device", i64{64} << 20, "", gpu_memory(rank, i64{64} << 20));
      if (rank == 1 && !to_the_exchange) return;
      const auto exchange = parallel::make_nccl_exchange(plan, {rank, 0.5, &pool, &ranks, nullptr});
      if (rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(3));
      const GpuQueue queue(Device::cuda(rank));
      const Allocation all = pool.allocate(parallel::kTileElems * 4, "test");
      exchange->sum(queue, {all.data(), static_cast<size_t>(all.bytes())}, DType::f32);
    });
    EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
  }
}

class NcclOnOneGpu : public GpuNccl {
 protected:
  void SetUp() override {
    if (const std::string problem = parallel::nccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
    want(1);
  }
};

TEST_F(NcclOnOneGpu, ATrialOfOneRankIsWell) {
  const auto said = on_ranks(1, 60, [](int, parallel::Communicator& alone) { EXPECT_EQ(parallel::try_nccl(alone, 0, 30).problem, ""); });
  EXPECT_EQ(said[0], "");
}

TEST_F(NcclOnOneGpu, WhoNeverCallsNcclIsNotWaitedForForEver) {
  ncclUniqueId id;
  ASSERT_EQ(parallel::nccl().unique_id(&id), ncclSuccess);
  const End end = end_of([&] { parallel::NcclCommunicator(id, {1, 3, Device::cuda(0), 0.3, "the ranks of this test"}); });
  EXPECT_EQ(end.code, ErrorCode::peer);
  EXPECT_NE(end.said.find("ranks 0, 2"), std::string::npos) << end.said;
}

TEST_F(GpuNccl, WhoLeavesNcclAloneInAnExchangeIsNotWaitedForForEver) {
  ncclUniqueId id;
  ASSERT_EQ(parallel::nccl().unique_id(&id), ncclSuccess);
  on_ranks(2, 60, [&](int rank, parallel::Communicator& ranks) {
    parallel::NcclCommunicator both(id, {rank, 2, Device::cuda(rank), 0.5, "the ranks of this test"});
    if (rank == 0) {
      MemoryPool pool("device", 4096, "", gpu_memory(0, 4096));
      const GpuQueue queue(Device::cuda(0));
      const Allocation all = pool.allocate(4096, "test");
      const End end = end_of([&] {
        both.group(
            [&](ncclComm_t comm) { both.check(parallel::nccl().receive(all.data(), 4096, ncclUint8, 1, comm, queue.handle()), "r"); },
            Event());
        both.wait(queue, "a test", Event());
      });
      EXPECT_EQ(end.code, ErrorCode::peer);
      EXPECT_NE(end.said.find("ranks 1"), std::string::npos) << end.said;
      EXPECT_NE(end_of([&] { both.group([](ncclComm_t) {}, Event()); }).said.find("of no use"), std::string::npos);
    }
    ranks.barrier().wait();
  });
}

TEST_F(NcclOnOneGpu, TwoRanksAreRefused) {
  ncclUniqueId id;
  ASSERT_EQ(parallel::nccl().unique_id(&id), ncclSuccess);
  const auto said = on_ranks(2, 60, [&](int rank, parallel::Communicator&) {
    parallel::NcclCommunicator(id, {rank, 2, Device::cuda(0), 5, "the ranks of this test"});
  });
  EXPECT_NE(said[0] + said[1], "");
}

TEST_F(GpuNccl, ATrialSendsEveryRanksBytesToAll) {
  const auto said = on_ranks(3, 60, [](int rank, parallel::Communicator& ranks) {
    const parallel::NcclTrial trial = parallel::try_nccl(ranks, rank, 30);
    EXPECT_EQ(trial.problem, "");
    EXPECT_GE(trial.memory_bytes, kMiB) << "its buffers are not counted";
  });
  for (const std::string& one : said) EXPECT_EQ(one, "");
}

#ifdef NCCL_EMULATED
TEST_F(GpuNccl, ATrialThatFailsIsASentenceOnEveryRank) {
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllGather"}) {
    emulated_cuda::fail(call, 1, cudaErrorLaunchFailure);
    on_ranks(2, 60, [&](int rank, parallel::Communicator& ranks) { EXPECT_NE(parallel::try_nccl(ranks, rank, 0.5).problem, "") << call; });
  }
}
#endif

TEST(Nccl, AMissingLibraryIsOneLineWithTheCure) {
  const End end = end_of([] { parallel::open_nccl({"/nowhere/libnccl.so.2"}); });
  EXPECT_EQ(end.code, ErrorCode::usage);
  EXPECT_NE(end.said.find("install NCCL"), std::string::npos) << end.said;
  EXPECT_EQ(end.said.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace spillway::test
#endif
