// Lesson: train a whole language model without a trainer. Builds the preset gpt2-tiny, initialises its weights at random, and learns one
// sentence of bytes by heart with AdamW on one micro-batch; then it continues the sentence greedily.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/presets.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "optim/adamw.h"

using namespace spillway;

namespace {

MicroBatch batch_of(const std::string& text) {
  const i64 T = static_cast<i64>(text.size()) - 1;
  MicroBatch batch{empty({1, T}, DType::int32), empty({1, T}, DType::int32), empty({1, T}, DType::int32), 0, T};
  for (i64 t = 0; t < T; ++t) {
    const auto at = static_cast<size_t>(t);
    batch.tokens_BT.data<i32>()[t] = static_cast<unsigned char>(text[at]);
    batch.targets_BT.data<i32>()[t] = static_cast<unsigned char>(text[at + 1]);  // the target of each byte is the next one
    batch.positions_BT.data<i32>()[t] = static_cast<i32>(t);
  }
  return batch;
}

struct Moments {
  Tensor m, v;
};

void adamw(const nn::Sequential& model, const nn::EagerParameters& weights, std::vector<Moments>& moments, i64 step) {
  const auto scalars = optim::make_adamw_scalars<float>({}, 1e-3, 0, step, 1);
  for (const auto& p : model.parameters) {
    const Tensor gradient = weights.gradient(p->id);  // for the tied embedding table: the sum of embedding's and head's gradients
    const Moments& moment = moments[p->id];
    optim::adamw_update<float>(p->value().span<float>(), moment.m.span<float>(), moment.v.span<float>(), gradient.span<float>(), scalars);
  }
}

char likeliest_next(const nn::Sequential& model, const std::string& text) {
  const MicroBatch batch = batch_of(text + " ");
  nn::Context context;
  context.mode = nn::Mode::generate;
  context.batch = &batch;
  context.logits_position = static_cast<i64>(text.size()) - 1;
  const Tensor logits = nn::run(model, context).value;
  return static_cast<char>(std::ranges::max_element(logits.span<float>()) - logits.span<float>().begin());
}

}  // namespace

int main() {
  const std::string sentence = "In the beginning God created the heaven and the earth.";
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  nn::EagerParameters weights(model);
  models::fill(model, models::ScratchWeights(1337));
  std::printf("%lld parameters\n", static_cast<long long>(model.parameter_elems()));

  std::vector<Moments> moments;  // the optimizer's moments, by parameter id
  for (const auto& p : model.parameters) moments.push_back({zeros(p->shape, p->dtype), zeros(p->shape, p->dtype)});

  const MicroBatch batch = batch_of(sentence);
  for (int step = 1; step <= 50; ++step) {
    autograd::Tape tape(&weights);
    nn::Context context;
    context.batch = &batch;
    context.tape = &tape;
    context.loss_factor = 1 / static_cast<double>(batch.counted_targets);  // makes the result the gradient of the mean loss
    const nn::Variable loss = nn::run(model, context);
    loss.backward();
    adamw(model, weights, moments, step);
    weights.forget();
    if (step % 10 == 0) std::printf("step %2d  loss %.4f\n", step, loss.value.item() * context.loss_factor);
  }

  std::string text = sentence.substr(0, 6);
  while (text.size() < sentence.size()) text += likeliest_next(model, text);
  std::printf("%s\n", text.c_str());
}
