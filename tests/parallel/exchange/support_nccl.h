// Provides training runs of several ranks, each on a different GPU, that talk over NCCL and count the collectives and bytes that they
// request. Only *cuda_test.cc files include this header.
#pragma once
#include "parallel/exchange/nccl_communicator_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <atomic>
#include <cstdlib>
#include <map>
#include <tuple>

#include "parallel/exchange/rank_exchange.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/device/support_gpus.h"

namespace spillway::test {

// Raises CUDA's limit of hardware connections before CUDA is used, as the program does for ranks that
// talk over NCCL. Such ranks have more queues than the default eight connections. If two queues shared a
// connection, an exchange might wait behind work that waits for that exchange.
inline const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

// Counts the all-gathers and reductions that the ranks requested, and the bytes that they sent and received.
struct ExchangeCalls {
  std::atomic<i64> gathers = 0, sums = 0, sent = 0, received = 0;
};

class CountingExchange final : public parallel::RankExchange {
 public:
  CountingExchange(std::unique_ptr<parallel::RankExchange> inner, ExchangeCalls& calls) : inner_(std::move(inner)), calls_(calls) {}

  void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const parallel::Dealt& dealt) override {
    ++calls_.gathers;
    inner_->gather(queue, mine, all, dealt);
  }
  void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const parallel::Dealt& dealt) override {
    ++calls_.sums;
    inner_->sum_part(queue, all, dtype, dealt);
  }
  void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) override {
    ++calls_.sums;
    inner_->sum(queue, all, dtype);
  }
  void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) override {
    calls_.sent += std::ssize(bytes);
    inner_->send(queue, bytes, to, tag);
  }
  void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) override {
    calls_.received += std::ssize(bytes);
    inner_->receive(queue, bytes, from, tag);
  }
  void settle() override { inner_->settle(); }

 private:
  const std::unique_ptr<parallel::RankExchange> inner_;
  ExchangeCalls& calls_;
};

class GpuNccl : public GpusTest {
 protected:
  void TearDown() override {
#ifdef NCCL_EMULATED
    EXPECT_EQ(emulated_cuda::nccl_communicators(), 0);
#endif
    GpusTest::TearDown();
  }

  // Returns a run over NCCL whose exchange buffer holds two tiles per rank, so that groups cross in several pieces.
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
    o.wrap_exchange = [this](std::unique_ptr<parallel::RankExchange> inner) {
      return std::make_unique<CountingExchange>(std::move(inner), calls_);
    };
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

  ExchangeCalls calls_;
};

}  // namespace spillway::test
#endif
