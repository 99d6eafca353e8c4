// Tests that exchanges over NCCL are only put on a GPU queue. No CPU thread waits for another rank, NCCL allocates all
// its memory before the first step, and a GPU that does not return from an exchange is reported.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "models/model.h"
#include "parallel/comm/communicator_local.h"
#include "parallel/comm/ordered_sum_gpu.h"
#include "parallel/device/gpu_lanes.h"
#include "parallel/exchange/nccl_exchange.h"
#include "parallel/program/meetings.h"
#include "tests/parallel/exchange/support_nccl.h"

#ifdef SPILLWAY_HAS_NCCL
namespace spillway::test::gpu_nccl_queue_cuda_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Holds one of two data-parallel ranks: its exchange, its queue and a piece of GPU memory. Each rank runs on a separate thread.
struct Side {
  int rank = 0;
  parallel::RankExchange& exchange;
  const GpuQueue& queue;
  std::span<std::byte> all;
};

class GpuNcclQueue : public GpuNccl {
 protected:
  void SetUp() override {
    GpuNccl::SetUp();
    want(2);
  }
  // Runs `body` on both ranks. Returns the error message of each rank, or an empty text for a rank without an error.
  std::vector<std::string> on_two(const std::function<void(const Side&)>& body) {
    auto ends = parallel::make_local_communicators(2, {.timeout_s = timeout_s_});
    std::vector<std::string> said(2);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r, end = std::move(ends[static_cast<size_t>(r)])] {
        try {
          be(r, *end, body);
        } catch (const std::exception& e) {
          said[static_cast<size_t>(r)] = e.what();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    return said;
  }

  double timeout_s_ = 30, abort_s_ = 15;
  std::function<void(const std::string&)> stuck_;

 private:
  void be(int rank, parallel::Communicator& end, const std::function<void(const Side&)>& body) {
    const nn::Sequential model = models::build(small_gpu_run("gpt2-tiny").model, DType::f32);
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.gpu_to_gpu = true;
    o.ranks = 2;
    const parallel::Plan plan = make_plan(plan_request(model, o, rank));
    MemoryPool pool("device", i64{64} << 20, "", gpu_memory(rank, i64{64} << 20));
    const auto exchange = parallel::make_nccl_exchange(plan, {rank, timeout_s_, &pool, &end, nullptr, stuck_, abort_s_});
    const GpuQueue queue(Device::cuda(rank));
    const Allocation all = pool.allocate(2 * parallel::kTileElems * 4, "test");
    body({rank, *exchange, queue, {all.data(), static_cast<size_t>(all.bytes())}});
  }
};

TEST_F(GpuNcclQueue, AnExchangeIsPutOnItsQueueBeforeTheOtherRankComes) {
  std::promise<void> put;
  std::future<void> is_put = put.get_future();
  const auto said = on_two([&](const Side& side) {
    if (side.rank == 1) {
      EXPECT_EQ(is_put.wait_for(seconds(10)), std::future_status::ready) << "rank 0 waits on its lane";
    }
    side.exchange.sum(&side.queue, side.all, DType::f32);
    side.exchange.sum(&side.queue, side.all, DType::f32);
    if (side.rank == 0) put.set_value();
    side.queue.wait();
    side.exchange.settle();
  });
  for (const std::string& one : said) EXPECT_EQ(one, "");
}

TEST_F(GpuNcclQueue, WhatNeverComesEndsTheQueueAndIsThrownWhereItSettles) {
  timeout_s_ = 0.5;
  const auto said = on_two([&](const Side& side) {
    if (side.rank == 1) return std::this_thread::sleep_for(seconds(3));
    side.exchange.sum(&side.queue, side.all, DType::f32);
    side.queue.wait();
    EXPECT_THROW(side.exchange.settle(), Error);
    EXPECT_THROW(side.exchange.sum(&side.queue, side.all, DType::f32), Error);
    side.exchange.settle();
  });
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
}

TEST_F(GpuNcclQueue, QueuesOfExchangesComeBeforeComputing) {
  const parallel::GpuLanes lanes({.device = Device::cuda(0)}, [](const parallel::Instruction&) { return true; });
  const auto priority = [&](parallel::Lane lane) {
    int of_queue = 0;
    EXPECT_EQ(cudaStreamGetPriority(lanes.queue(lane)->handle(), &of_queue), cudaSuccess);
    return of_queue;
  };
  for (const parallel::Lane lane : parallel::kExchangeLanes) {
    EXPECT_LT(priority(lane), priority(parallel::Lane::compute)) << "a smaller number goes first";
  }
  EXPECT_EQ(priority(parallel::Lane::load), priority(parallel::Lane::compute));
}

#ifdef NCCL_EMULATED
// Queues a kernel that is unrelated to NCCL.
void ordered_sum(const Allocation& memory, const GpuQueue& queue) {
  const Stream kernels{.device = Device::cuda(0), .memory = &MemoryPool::heap(), .queue = queue.handle()};
  const StreamScope scope(kernels);
  parallel::ordered_sum_on_gpu(memory.data(), memory.data(), 1024, 0, 2, DType::f32, 1024);
}

TEST_F(GpuNcclQueue, NcclTakesAllItsMemoryBeforeTheFirstStep) {
  std::atomic<size_t> before{0};
  const auto said = on_two([&](const Side& side) {
    before = emulated_cuda::held_bytes();  // at this point both ranks have taken their memory, since each has waited for the other
    const std::vector<i64> halves = {0, 1, 2};
    const parallel::Dealt dealt{halves, parallel::kTileElems * 4};
    side.exchange.sum_part(&side.queue, side.all.data(), DType::f32, dealt);
    side.exchange.gather(&side.queue, side.all.subspan(static_cast<size_t>(side.rank) * side.all.size() / 2, side.all.size() / 2),
                         side.all.data(), dealt);
    side.queue.wait();
    side.exchange.settle();
    EXPECT_EQ(emulated_cuda::held_bytes(), before);
  });
  for (const std::string& one : said) EXPECT_EQ(one, "");
}

TEST_F(GpuNcclQueue, BlocksThatWaitForOtherRanksLeaveHalfOfTheGpu) {
  for (const std::string& one : on_two([](const Side&) {})) EXPECT_EQ(one, "");
  constexpr int kEmulatedProcessors = 4;
  EXPECT_GE(emulated_cuda::nccl_most_blocks(), 1);
  EXPECT_LT(emulated_cuda::nccl_most_blocks() * parallel::kNcclAtOnce, kEmulatedProcessors);
}

TEST_F(GpuNcclQueue, AKernelThatLoadsBesideAnExchangeIsLateUnlessAllAreLoadedAtTheStart) {
  for (const bool eager : {false, true}) {
    eager ? ::setenv("CUDA_MODULE_LOADING", "EAGER", 1) : ::unsetenv("CUDA_MODULE_LOADING");
    std::atomic<bool> launched = false;
    on_two([&](const Side& side) {
      if (side.rank == 1) {
        while (!launched) std::this_thread::sleep_for(milliseconds(1));
      }
      side.exchange.sum(&side.queue, side.all, DType::f32);
      if (side.rank == 0) {
        while (emulated_cuda::nccl_waiting() == 0) std::this_thread::sleep_for(milliseconds(1));
        const GpuQueue other(Device::cuda(0));
        MemoryPool pool("device", kMiB, "", gpu_memory(0, kMiB));
        const Allocation sum = pool.allocate(4096, "test");
        emulated_cuda::forget_kernels();
        ordered_sum(sum, other);
        other.wait();
        launched = true;
      }
      side.queue.wait();
      side.exchange.settle();
    });
    EXPECT_EQ(emulated_cuda::late_loads() > 0, !eager);
  }
  ::unsetenv("CUDA_MODULE_LOADING");
}

// Makes NCCL's abort hang on rank 0's GPU, so that everyone who waits for its queue hangs too. The
// `stuck` callback must be called in time; the program would end the process there.
TEST_F(GpuNcclQueue, AGpuThatNcclDoesNotLetGoOfIsToldInTime) {
  timeout_s_ = 0.5, abort_s_ = 0.3;
  std::promise<std::string> told;
  std::atomic<bool> first = true;
  stuck_ = [&](const std::string& why) {
    if (first.exchange(false)) told.set_value(why);
    emulated_cuda::block_nccl_abort(false);  // `stuck` has been called; outside of a test the program would end the process there
  };
  emulated_cuda::block_nccl_abort(true);
  const auto said = on_two([&](const Side& side) {
    if (side.rank == 1) return std::this_thread::sleep_for(seconds(4));
    side.exchange.sum(&side.queue, side.all, DType::f32);
    side.queue.wait();
    side.exchange.settle();
  });
  emulated_cuda::block_nccl_abort(false);
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
  std::future<std::string> why = told.get_future();
  ASSERT_EQ(why.wait_for(seconds(0)), std::future_status::ready);
  const std::string text = why.get();
  EXPECT_NE(text.find("the data-parallel ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  while (emulated_cuda::nccl_communicators() > 0) std::this_thread::sleep_for(milliseconds(1));
}
#endif

}  // namespace
}  // namespace spillway::test::gpu_nccl_queue_cuda_test
#endif
