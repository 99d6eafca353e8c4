// Lesson: model parallelism by hand. A ResNet is cut in two: rank 0 has the stem and the first residual block, rank 1 the rest and the
// loss. The numbered comments follow what crosses the cut: activations forward, their gradients back. The batch is split into
// micro-batches, so that rank 0 computes the next micro-batch while rank 1 works on the one before. The losses are those of the uncut
// model, bit for bit. Ranks are threads here; with another Communicator they are processes, and the code below stays the same.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "models/resnet.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "parallel/comm/communicator_local.h"

using namespace spillway;

namespace {

// kImages is the number of images per micro-batch; rank 0 has kCut blocks
constexpr i64 kSteps = 24, kMicroBatches = 4, kImages = 4, kSide = 32, kCut = 2;
const models::ResNetConfig kModel{.widths = {8, 16, 32}, .blocks = {1, 1, 1}};
const Shape kSeam{kImages, 8, kSide, kSide};  // shape of the activation that block kCut - 1 outputs

std::span<std::byte> bytes_of(const Tensor& tensor) { return std::as_writable_bytes(tensor.span<float>()); }

// Makes noisy images in which each class has a different stripe pattern.
MicroBatch micro_batch(i64 number) {
  MicroBatch batch;
  batch.images_NCHW = empty({kImages, 3, kSide, kSide}, DType::f32);
  batch.targets_BT = empty({kImages}, DType::int32);
  for (i64 n = 0; n < kImages; ++n) {
    const i64 label = (number * kImages + n) % 10, elems = 3 * kSide * kSide;
    batch.targets_BT.data<i32>()[n] = static_cast<i32>(label);
    for (i64 i = 0; i < elems; ++i) {
      const double stripes = i / kSide % (label + 2) == 0 ? 1 : -1;
      batch.images_NCHW.data<float>()[n * elems + i] =
          static_cast<float>(stripes + 0.3 * normal(RandomKey{9}, static_cast<u64>(number * kImages + n), static_cast<u64>(i)));
    }
  }
  return batch;
}

// Holds blocks [begin, end) of the model, with memory for their parameters only. Initial weights depend on the parameters' names, not on
// the cut.
class Part {
 public:
  Part(size_t begin, size_t end) : blocks_(cut(begin, end)), weights_(blocks_) { models::fill(blocks_, models::ScratchWeights(1337)); }

  nn::Variable forward(nn::Variable x, const MicroBatch& batch, autograd::Tape& tape) const {
    nn::Context context{// makes the result the gradient of the mean loss over the batch
                        .batch = &batch,
                        .tape = &tape,
                        .loss_factor = 1.0 / (kImages * kMicroBatches)};
    for (const auto& block : blocks_.blocks) x = block->forward(x, context);
    return x;
  }
  nn::EagerParameters& gradients() { return weights_; }

  void step() {
    for (const auto& p : blocks_.parameters) {
      if (p->statistic) continue;  // skips batch-norm statistics, which only evaluation reads
      const Tensor gradient = weights_.gradient(p->id);
      for (i64 i = 0; i < p->elems(); ++i) p->value().data<float>()[i] -= 0.1f * gradient.data<float>()[i];
    }
    weights_.forget();
  }

 private:
  static nn::Sequential cut(size_t begin, size_t end) {
    nn::Sequential whole = models::build_resnet(kModel, {3, kSide, kSide}, 10, DType::f32), part;
    for (size_t b = begin; b < std::min(end, whole.blocks.size()); ++b) part.push(std::move(whole.blocks[b]));
    return part;
  }
  const nn::Sequential blocks_;
  nn::EagerParameters weights_;
};

void first_rank(parallel::Communicator& ranks, const std::vector<MicroBatch>& batches) {
  Part part(0, kCut);
  for (i64 step = 0; step < kSteps; ++step) {
    std::vector<std::unique_ptr<autograd::Tape>> tapes;  // one tape for each micro-batch, since all micro-batches are in flight together
    std::vector<nn::Variable> outputs;
    std::vector<Event> sent;
    for (int k = 0; k < kMicroBatches; ++k) {
      tapes.push_back(std::make_unique<autograd::Tape>(&part.gradients()));
      outputs.push_back(part.forward({}, batches[static_cast<size_t>(k)], *tapes.back()));
      // 1. An activation is sent; meanwhile this rank computes the next one.
      sent.push_back(ranks.send(bytes_of(outputs.back().value), 1, k));
    }
    for (int k = 0; k < kMicroBatches; ++k) {
      const Tensor gradient = empty(kSeam, DType::f32);
      ranks.receive(bytes_of(gradient), 1, k).wait();  // 4. The gradient of the activation comes back, and backward continues from it.
      sent[static_cast<size_t>(k)].wait();
      tapes[static_cast<size_t>(k)]->backward(outputs[static_cast<size_t>(k)], gradient);
    }
    part.step();
  }
}

// Runs the part that ends with the loss. This is the part that rank 0 does not have or, if `first` is null, the whole model. Returns the
// loss of each step.
std::vector<double> last_rank(size_t begin, parallel::Communicator* first, const std::vector<MicroBatch>& batches) {
  Part part(begin, ~size_t{0});
  std::vector<double> losses(kSteps, 0.0);
  for (double& loss_of_step : losses) {
    for (int k = 0; k < kMicroBatches; ++k) {
      autograd::Tape tape(&part.gradients());
      nn::Variable x;
      if (first) {
        x = tape.input(empty(kSeam, DType::f32));  // 2. On rank 1 the activation is an input, whose gradient the tape keeps.
        first->receive(bytes_of(x.value), 0, k).wait();
      }
      const nn::Variable loss = part.forward(x, batches[static_cast<size_t>(k)], tape);
      loss.backward();
      if (first) first->send(bytes_of(tape.take_gradient(x)), 0, k).wait();  // 3. The gradient is sent to rank 0.
      loss_of_step += loss.value.item();
    }
    part.step();
  }
  return losses;
}

}  // namespace

int main() {
  std::vector<MicroBatch> batches;
  for (i64 k = 0; k < kMicroBatches; ++k) batches.push_back(micro_batch(k));
  auto ends = parallel::make_local_communicators(2);
  std::vector<double> losses;
  std::thread first([&] { first_rank(*ends[0], batches); }), second([&] { losses = last_rank(kCut, ends[1].get(), batches); });
  first.join();
  second.join();
  for (size_t step = 0; step < losses.size(); step += 3)
    std::printf("step %2zu  loss %.4f\n", step, losses[step] / (kImages * kMicroBatches));
  const bool equal = losses == last_rank(0, nullptr, batches), learned = losses.back() < 0.5 * losses.front();
  std::printf("%s the uncut model's losses\n", equal ? "bit for bit" : "NOT");
  return equal && learned ? 0 : 1;
}
