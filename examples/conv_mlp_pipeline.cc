// Lesson: pipeline parallelism. The CIFAR-10 tutorial network consists of two blocks, ConvPart and MlpPart; each runs on its own rank. A
// batch passes through in 32 chunks: while MlpPart learns from one chunk, ConvPart computes the next, so a rank is idle only at the
// beginning or the end of a step. ConvPart's forward passes are one chunk ahead of its backward passes (the 1F1B schedule), so it keeps the
// activations of two chunks, not of 32. Gradients are summed in chunk order on either rank, hence the losses equal those of a single rank,
// bit for bit.
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "optim/adamw.h"
#include "parallel/comm/communicator_local.h"

using namespace spillway;

namespace {

constexpr int kChunks = 32;
constexpr i64 kSteps = 10, kImages = 2;  // kImages is the number of images per chunk

std::span<std::byte> bytes_of(const Tensor& tensor) { return std::as_writable_bytes(tensor.span<float>()); }

// Makes a chunk of noisy images in which class c has bright rows where no other class has them.
MicroBatch chunk_of_batch(u64 number) {
  MicroBatch chunk;
  chunk.images_NCHW = empty({kImages, 3, 32, 32}, DType::f32);
  chunk.targets_BT = empty({kImages}, DType::int32);
  for (i64 i = 0; i < chunk.images_NCHW.elems(); ++i) {
    const i64 label = (static_cast<i64>(number) * kImages + i / 3072) % 10;
    chunk.targets_BT.data<i32>()[i / 3072] = static_cast<i32>(label);
    const double bright = i / 32 % 32 / 3 == label ? 1 : 0;
    chunk.images_NCHW.data<float>()[i] = static_cast<float>(bright + 0.2 * normal(RandomKey{4}, number, static_cast<u64>(i)));
  }
  return chunk;
}

class Stage {
 public:
  explicit Stage(std::vector<size_t> blocks) : part_(take(blocks)), weights_(part_) {
    models::fill(part_, models::ScratchWeights(7));
    for (const auto& p : part_.parameters) moments_.push_back({zeros(p->shape, p->dtype), zeros(p->shape, p->dtype)});
  }
  std::unique_ptr<autograd::Tape> tape() { return std::make_unique<autograd::Tape>(&weights_); }

  nn::Variable forward(nn::Variable x, const MicroBatch& chunk, autograd::Tape& tape) const {
    nn::Context context{.batch = &chunk, .tape = &tape, .loss_factor = 1.0 / (kChunks * kImages)};
    for (const auto& block : part_.blocks) x = block->forward(x, context);
    return x;
  }

  void step(i64 number) {
    const auto scalars = optim::make_adamw_scalars<float>({}, 2e-3, 0.01, number + 1, 1);
    for (const auto& p : part_.parameters) {
      const auto& [m, v] = moments_[p->id];
      optim::adamw_update<float>(p->value().span<float>(), m.span<float>(), v.span<float>(), weights_.gradient(p->id).span<float>(),
                                 scalars);
    }
    weights_.forget();
  }

 private:
  static nn::Sequential take(const std::vector<size_t>& blocks) {
    nn::Sequential all = models::build(models::preset("cifar-net"), DType::f32), part;
    for (const size_t block : blocks) part.push(std::move(all.blocks[block]));
    return part;
  }
  const nn::Sequential part_;
  nn::EagerParameters weights_;
  std::vector<std::pair<Tensor, Tensor>> moments_;  // AdamW's moments, by parameter id
};

struct InFlight {
  std::unique_ptr<autograd::Tape> tape;
  nn::Variable output;
  Event sent;  // the communicator reads the output until this event is complete
};

void conv_rank(parallel::Communicator& ranks, const std::vector<MicroBatch>& chunks) {
  Stage conv({0});
  for (i64 step = 0; step < kSteps; ++step) {
    std::vector<InFlight> flights(kChunks);
    for (int k = 0; k <= kChunks; ++k) {
      if (k < kChunks) {
        InFlight& ahead = flights[static_cast<size_t>(k)];
        ahead.tape = conv.tape();
        ahead.output = conv.forward({}, chunks[static_cast<size_t>(k)], *ahead.tape);
        ahead.sent = ranks.send(bytes_of(ahead.output.value), 1, k);
      }
      if (k == 0) continue;
      InFlight done = std::move(flights[static_cast<size_t>(k - 1)]);  // the chunk's state is released at the end of this iteration
      const Tensor gradient = empty(done.output.shape(), DType::f32);
      ranks.receive(bytes_of(gradient), 1, k - 1).wait();
      done.sent.wait();
      done.tape->backward(done.output, gradient);
    }
    conv.step(step);
  }
}

// Runs the stage that ends with the loss. That is MlpPart, whose input comes from ConvPart's rank, or, if `conv` is null, both parts on one
// rank. Returns the loss of each step.
std::vector<double> last_rank(std::vector<size_t> blocks, parallel::Communicator* conv, const std::vector<MicroBatch>& chunks) {
  Stage stage(std::move(blocks));
  std::vector<double> losses(kSteps, 0.0);
  for (i64 step = 0; step < kSteps; ++step) {
    for (int k = 0; k < kChunks; ++k) {
      const auto tape = stage.tape();
      nn::Variable features;
      if (conv) {
        features = tape->input(empty({kImages, 400}, DType::f32));
        conv->receive(bytes_of(features.value), 0, k).wait();
      }
      const nn::Variable loss = stage.forward(features, chunks[static_cast<size_t>(k)], *tape);
      loss.backward();
      if (conv) conv->send(bytes_of(tape->take_gradient(features)), 0, k).wait();
      losses[static_cast<size_t>(step)] += loss.value.item();
    }
    stage.step(step);
  }
  return losses;
}

}  // namespace

int main() {
  std::vector<MicroBatch> chunks;
  for (u64 k = 0; k < kChunks; ++k) chunks.push_back(chunk_of_batch(k));
  auto ends = parallel::make_local_communicators(2);
  std::vector<double> losses;
  std::thread conv([&] { conv_rank(*ends[0], chunks); }), mlp([&] { losses = last_rank({1}, ends[1].get(), chunks); });
  conv.join();
  mlp.join();
  for (size_t step = 0; step < losses.size(); step += 3) std::printf("step %2zu  loss %.4f\n", step, losses[step] / (kChunks * kImages));
  const bool equal = losses == last_rank({0, 1}, nullptr, chunks), learned = losses.back() < 0.8 * losses.front();
  std::printf("%s the losses of one rank alone\n", equal ? "bit for bit" : "NOT");
  return equal && learned ? 0 : 1;
}
