// Tests failures among ranks that talk over NCCL. If one rank fails, every rank must get an error soon.
#include "tests/parallel/exchange/support_nccl.h"

#ifdef SPILLWAY_HAS_NCCL
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "device/memory_pool.h"
#include "models/model.h"
#include "parallel/comm/communicator_local.h"
#include "parallel/exchange/nccl_exchange.h"

namespace spillway::test::gpu_nccl_failures_cuda_test {
namespace {

// Tells how a run ended (error message and code), and how long it took.
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

// This limit, in seconds, is far below the 60 s that ranks wait for each other. A run that ends within the limit was not ended by a
// time-out.
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
  EXPECT_GT(loads, 5);
  // The first rank reports either its own fault, or the fault of another rank that reached its sixth load earlier.
  EXPECT_TRUE(end.said.find("planted") != std::string::npos || end.said.find("because one of them failed") != std::string::npos)
      << end.said;
  EXPECT_LT(end.seconds, kSoon_s);
}

#ifdef NCCL_EMULATED
// Makes NCCL fail on one rank after its peers have begun a collective that needs this rank: before the rank enters it, or inside.
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

// Runs `body` on ranks, each a thread that has only a communicator. Returns the error message of each rank.
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
      // the loop keeps this rank alive, but it is late for its collective
      for (--running; running > 0;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
      exchange->sum(&queue, {all.data(), static_cast<size_t>(all.bytes())}, DType::f32);
      queue.wait();
      exchange->settle();
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
      EXPECT_NE(end_of([&] { both.group([](ncclComm_t) {}, Event()); }).said.find("because one of them failed"), std::string::npos);
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
#ifdef NCCL_EMULATED  // With a real NCCL this is not checked: another communicator of this process may have taken the memory before.
    EXPECT_GE(trial.communicator_bytes, static_cast<i64>(emulated_cuda::kNcclBytes)) << "its buffers are not counted";
#endif
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
}  // namespace spillway::test::gpu_nccl_failures_cuda_test
#endif
