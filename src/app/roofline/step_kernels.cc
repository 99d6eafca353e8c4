#include "app/roofline/step_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "app/roofline/expert_kernels.h"
#include "base/error.h"
#include "device/stream.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/rows/norm.h"
#include "kernels/sequence/attention_library.h"
#include "models/families/style.h"
#include "ops/losses/loss.h"

// Legend: R = rows (positions of a micro-batch), C = width, F = MLP's width, V = vocabulary, H = heads, D = head width.
namespace spillway::app {
namespace {

using models::ModelConfig;
using parallel::Instruction;
using parallel::Op;
using parallel::Plan;
using parallel::Tier;

constexpr double kHalf = 2, kWide = 4;  // bytes of a bf16 or fp16 number, and of an fp32 number
constexpr i64 kAligned = 16;            // bytes of the widest load instruction

// Runs says how often the kernels of one kind of block (embedding, layer or head) run in a step. `forward` counts runs of its forward,
// including recomputations for a backward. `backward` counts runs of its backward; if the backward is split in two parts, each part
// counts. `input` and `weights` count the runs that compute the gradients of its input and of its weights. `added` counts the runs
// that add weight gradients to those of earlier micro-batches. `logits` counts the runs that recompute the logits of the head.
struct Runs {
  double forward = 0, backward = 0, input = 0, weights = 0, added = 0, logits = 0;
};
Runs operator-(const Runs& a, const Runs& b) {
  return {a.forward - b.forward, a.backward - b.backward, a.input - b.input, a.weights - b.weights, a.added - b.added, a.logits - b.logits};
}

class Table {
 public:
  Table(const Plan& plan, const ModelConfig& model, const Ceilings& ceilings)
      : plan_(plan), m_(model), ceilings_(ceilings), rows_(static_cast<double>(plan.micro_batch_size * plan.sequence_length)) {}

  std::vector<Kernel> all() {
    Stream gpu = Stream::current();
    gpu.device = Device::meta(Device::Kind::cuda);
    // while this object lives, sizes are those of a GPU, where kernels cut logits and norms' rows into pieces
    const StreamScope as_on_a_gpu(gpu);
    const std::map<Block, Runs> runs = runs_by_block();
    const auto of = [&](Block block) { return runs.contains(block) ? runs.at(block) : Runs(); };
    m_.family == models::Family::gpt2 ? gpt2_layer(of(Block::layer))
                                      : llama_layer(of(Block::layer), of(Block::expert_layer), of(Block::windowed_layer));
    embedding(of(Block::embedding));
    head(of(Block::head));
    for (const parallel::List* list : {&plan_.train.head, &plan_.train.commit}) {
      for (const Instruction& i : *list) instruction(i);
    }
    std::erase_if(kernels_, [](const Kernel& k) { return k.times == 0; });
    return std::move(kernels_);
  }

 private:
  // a layer with experts, and one whose window is shorter than a row, is also a layer
  enum class Block { embedding, layer, expert_layer, windowed_layer, head };

  std::map<Block, Runs> runs_by_block() const {
    std::map<Block, Runs> runs;
    for (const Instruction& i : plan_.train.head) {
      if (!computes_block(i.op)) continue;
      if (i.block == 0) {
        count(i, runs[Block::embedding]);
      } else if (i.block + 1u == plan_.layout.blocks.size()) {
        count(i, runs[Block::head]);
      } else {
        count(i, runs[Block::layer]);
        if (m_.has_experts(i.block - 1)) count(i, runs[Block::expert_layer]);
        if (m_.is_windowed(i.block - 1) && m_.window < plan_.sequence_length) count(i, runs[Block::windowed_layer]);
      }
    }
    return runs;
  }
  void count(const Instruction& i, Runs& r) const {
    const bool input = makes_input_gradient(i.op), weights = makes_weight_gradients(i.op);
    r.forward += i.op == Op::Forward || i.recompute;
    r.backward += i.op != Op::Forward;
    r.input += input;
    r.weights += weights;
    r.added += weights && !i.first;
    r.logits += i.op != Op::Forward && plan_.logits_bytes > 0 && !i.keep_logits;
  }

  // Each function from here to gpt2_layer() adds or describes one kind of kernel.

  void add(Kernel kernel, double times) {
    kernel.times = times;
    kernels_.push_back(std::move(kernel));
  }

  // Adds a kernel that is one pass over GPU memory.
  void pass(Work work, const std::string& name, double times, double bytes, double share = 1, std::string note = "") {
    add({.work = work, .name = name, .bytes = bytes, .memory = share, .note = std::move(note)}, times);
  }

  // Returns the share of the usual memory rate that a kernel reaches, given the bytes that the kernel has in flight (Little's
  // law). The kernel has `blocks` thread blocks of `threads` threads, and each thread loads `bytes_of_thread` bytes at once.
  double in_flight(double blocks, double threads, double bytes_of_thread) const {
    const double resident = std::min(blocks, static_cast<double>(ceilings_.processors) * std::floor(2048 / threads));
    const double rate = resident * threads * bytes_of_thread / ceilings_.memory_latency_s;
    return std::min(1.0, rate / (ceilings_.memory_bytes_per_s * ceilings_.memory_share));
  }
  static std::string in_flight_text(double blocks, double threads, double bytes_of_thread) {
    return fmt::format("{:.0f} thread blocks of {:.0f} threads, each thread loads {:.0f} B at once", blocks, threads, bytes_of_thread);
  }

  // Returns the share of the multiprocessors' time that a product with an m x n result uses. Some time is lost
  // because the result is computed in whole tiles, and the tiles in whole waves. If there are too few tiles, the
  // sums are split (split-K), or smaller tiles are used, which read more. Either remedy costs the factor kSmaller.
  double tile_share(double m, double n) const {
    constexpr double kSmaller = 0.9;
    double best = 0;
    for (const auto& [down, across] : {std::pair(128.0, 256.0), {256.0, 128.0}, {128.0, 128.0}}) {
      for (const double split : {1.0, 2.0, 4.0}) {
        const double tiles = std::ceil(m / down) * std::ceil(n / across) * split;
        const double slots = std::ceil(tiles / static_cast<double>(ceilings_.processors)) * static_cast<double>(ceilings_.processors);
        const double share = m * n * split / (slots * down * across);
        best = std::max(best, share * (down == across ? kSmaller : 1) * (split > 1 ? kSmaller : 1));
      }
    }
    return best;
  }

  // Returns the kernel of C[m, n] = A[m, k] B[k, n]. A and B are bf16 or fp16, and an
  // element of C has `out_bytes` bytes. Rows are assumed to be aligned to 16 bytes.
  Kernel product(Work work, const std::string& name, double m, double n, double k, double out_bytes) const {
    Kernel kernel{.work = work, .name = name, .flops = 2 * m * n * k, .bytes = kHalf * (m * k + n * k) + out_bytes * m * n};
    kernel.model_flops = kernel.flops;
    kernel.compute = tile_share(m, n);
    kernel.note = fmt::format("{:.0f} x {:.0f} x {:.0f}", m, n, k);
    return kernel;
  }

  // Makes a product multiply in fp8. Each operand is first rounded by kernels that read it twice, for its largest magnitude and for its
  // codes, and write the codes.
  void in_fp8(Kernel product, double m, double n, double k, double times) {
    const double elems = m * k + n * k;
    pass(Work::products, product.name + ", rounded to fp8", times, (2 * kHalf + 1) * elems);
    product.bytes -= (kHalf - 1) * elems;
    product.compute *= ceilings_.fp8_factor;
    add(std::move(product), times);
  }
  void add_linear(Kernel kernel, double m, double n, double k, double times) {
    m_.fp8 ? in_fp8(std::move(kernel), m, n, k, times) : add(std::move(kernel), times);
  }

  // Adds the kernels of y = x w + bias: the product, the gradients of x and w, and the gradient of the bias, which is a separate kernel.
  // `beside` and `beside_dx` are additional bytes that the products for y and for dx move: a product may also write another output computed
  // from its result, or read an array to which its result is added.
  void linear(const std::string& name, const Runs& r, double in, double out, bool bias, double beside = 0, double beside_dx = 0) {
    Kernel y = product(Work::products, name, rows_, out, in, kHalf), dx = product(Work::products, name + ", dx", rows_, in, out, kHalf);
    y.bytes += beside, dx.bytes += beside_dx;
    add_linear(std::move(y), rows_, out, in, r.forward);
    again(r.forward - r.input);
    add_linear(std::move(dx), rows_, in, out, r.input);
    add_linear(product(Work::products, name + ", dw", in, out, rows_, kWide), in, out, rows_, r.weights);
    if (bias) column_sums(name + ", dbias", r, out);
  }
  // Marks `times` runs of the kernel that was added last as recomputation for a backward, which does not count in model_flops.
  void again(double times) {
    Kernel& kernel = kernels_.back();
    if (kernel.times > 0) kernel.model_flops *= std::max(0.0, kernel.times - std::max(0.0, times)) / kernel.times;
  }

  // Adds the kernel kernels::sum_axis. A thread block of 512 threads sums 32 packs of eight columns each,
  // or fewer packs so that there are at least 128 thread blocks. A thread has eight loads in flight.
  void column_sums(const std::string& name, const Runs& r, double columns) {
    constexpr double kThreads = 512, kUnderWay = 8 * kAligned;
    const double packs = std::ceil(columns / 8);
    double width = 32;
    while (width > 2 && std::ceil(packs / width) < 128) width /= 2;
    const double blocks = std::ceil(packs / width);
    pass(Work::elementwise, name, r.weights, kHalf * rows_ * columns, in_flight(blocks, kThreads, kUnderWay),
         in_flight_text(blocks, kThreads, kUnderWay));
  }

  // Adds the kernels of a norm. The bytes of the statistics of rows are too few to be counted. With `joined`, dx is added to the gradient
  // of the residual. The gradients of the norm's parameters are summed in chunks of rows; a thread block has 256 columns of a chunk, and a
  // thread has one load of each of two arrays in flight.
  void norm(const std::string& name, Work work, const Runs& r, bool joined) {
    constexpr double kThreads = 256, kUnderWay = 2 * kAligned;
    const double c = width(), blocks = std::ceil(c / 256) * static_cast<double>(kernels::norm_chunks(static_cast<i64>(rows_)));
    pass(work, name, r.forward, 2 * kHalf * rows_ * c);
    pass(work, name + ", dx", r.input, (joined ? 4 : 3) * kHalf * rows_ * c);
    pass(work, name + ", dgamma and dbeta", r.weights, 2 * kHalf * rows_ * c, in_flight(blocks, kThreads, kUnderWay),
         in_flight_text(blocks, kThreads, kUnderWay));
  }

  void dropout(const std::string& name, const Runs& r, double share) {
    if (share > 0) pass(Work::elementwise, name, r.forward + r.input, 2 * kHalf * rows_ * width());
  }

  // Adds the kernels of attention. For each score (query times key) Spillway's own kernel computes two products in forward and seven in
  // backward: the usual five, and the scores and the gradients of the probabilities a second time. The kernel works in tiles of 128 queries
  // up to the diagonal. The model itself needs two products in forward and four in backward, and only for scores up to the diagonal. In a
  // layer with a window, tiles before the window are left out, up to one tile of 64 keys for 32 queries. Rows count as one document each.
  void attention(const Runs& r, double window = 0) {
    const auto t = static_cast<double>(plan_.sequence_length), heads = static_cast<double>(m_.heads), d = static_cast<double>(m_.head_dim);
    const double batch = static_cast<double>(plan_.micro_batch_size), q = heads * d, kv = static_cast<double>(m_.kv_heads) * d;
    const double full = window > 0 ? window : t, later = t - full;  // the first queries see all keys before them
    const double scores = batch * heads * (full * (full + 128) / 2 + later * (full + 128)),
                 asked = batch * heads * (full * (full + 1) / 2 + later * full), lse = kWide * rows_ * heads;
    const std::string where = window > 0 ? fmt::format(" in windows of {:.0f}", window) : "";
    const auto multiplied = [&](const char* name, double products, double exps, double model, double bytes) {
      return Kernel{.work = Work::attention,
                    .name = "attention" + where + name,
                    .flops = products * 2 * d * scores,
                    .exps = exps * scores,
                    .bytes = bytes,
                    .model_flops = model * 2 * d * asked,
                    .note = fmt::format("{:.0f} products of length {:.0f} per score", products, d)};
    };
    Kernel forward = multiplied("", 2, 1, 2, kHalf * rows_ * (2 * q + 2 * kv) + lse);
    const bool cudnn = window == 0 && m_.attention == kernels::AttentionLibrary::cudnn && kernels::attention_shape_problem(shape()).empty();
    const auto by_cudnn = [&](Kernel kernel, double wide, double narrow) {
      kernel.reaches = d < 96 ? narrow : wide;
      kernel.note += fmt::format(", at {:.1f} % of the peak by cuDNN", 100 * kernel.reaches);
      return kernel;
    };
    if (cudnn) forward = by_cudnn(std::move(forward), ceilings_.cudnn_forward_share, ceilings_.cudnn_narrow_forward_share);
    add(std::move(forward), r.forward);
    again(r.forward - r.input);
    pass(Work::attention, "attention" + where + ", out times dout", r.input, kHalf * rows_ * 2 * q + lse);
    if (!cudnn) return add(multiplied(", dq dk dv", 7, 2, 4, kHalf * rows_ * (5 * q + 6 * kv) + 4 * lse), r.input);
    // cuDNN's backward, if its sums must have a fixed order, writes the gradients of all T x T scores to memory, and computes dq as a
    // product of these gradients.
    const double square = kHalf * batch * heads * t * t;
    for (Kernel part : {multiplied(", dk dv and dscores", 4, 1, 3, kHalf * rows_ * (2 * q + 4 * kv) + 2 * lse + square),
                        multiplied(", dq of dscores", 1, 0, 1, kHalf * rows_ * (q + kv) + square)})
      add(by_cudnn(std::move(part), ceilings_.cudnn_backward_share, ceilings_.cudnn_narrow_backward_share), r.input);
  }
  kernels::AttentionShape shape() const {
    return {.batch = plan_.micro_batch_size,
            .length = plan_.sequence_length,
            .heads = m_.heads,
            .kv_heads = m_.kv_heads,
            .width = m_.head_dim,
            .dtype = plan_.scheduling.format.weight};
  }

  // Adds the kernel that accumulates weight gradients. The gradients of a micro-batch
  // are computed completely and then added to those of earlier micro-batches.
  void accumulate(const std::string& name, const Runs& r, double parameters) {
    pass(Work::elementwise, name, r.added, 3 * kWide * parameters);
  }

  double width() const { return static_cast<double>(m_.width); }

  // The functions from here on, up to instruction(), each add the kernels of one kind of block.

  void gpt2_layer(const Runs& r) {
    const double c = width(), f = static_cast<double>(m_.mlp_width);
    linear("qkv", r, c, 3 * c, true);
    linear("attention's projection", r, c, c, true, residual());
    // The tanh approximation of GELU is fused into the products "MLP up" and "MLP down". In forward the product also writes GELU's input,
    // and in backward the product also reads it.
    const bool within = m_.activation == models::Activation::gelu_tanh && !m_.fp8;
    linear("MLP up", r, c, f, true, within ? kHalf * rows_ * f : 0, 0);
    linear("MLP down", r, f, c, true, residual(), within ? kHalf * rows_ * f : 0);
    attention(r);
    norms_and_residuals(r);
    if (!within) {
      pass(Work::elementwise, "activation", r.forward, 2 * kHalf * rows_ * f);
      pass(Work::elementwise, "activation, dx", r.input, 3 * kHalf * rows_ * f);
    }
    dropout("dropout after attention", r, m_.residual_dropout);
    dropout("dropout after the MLP", r, m_.residual_dropout);
    accumulate("weight gradients added", r, 4 * c * c + 2 * c * f + 9 * c + f);
  }

  // Returns the bytes of the residual, which a product reads to add its result
  // to it. With dropout this is 0, because a separate kernel makes the addition.
  double residual() const { return m_.residual_dropout > 0 ? 0 : one_pass(); }
  double one_pass() const { return kHalf * rows_ * width(); }

  void norms_and_residuals(const Runs& r) {
    norm("norm before attention", Work::elementwise, r, true);
    norm("norm before the MLP", Work::elementwise, r, true);
    if (m_.residual_dropout > 0) pass(Work::elementwise, "residual additions", 2 * r.forward, 3 * one_pass());
  }

  void llama_layer(const Runs& r, const Runs& mixed, const Runs& windowed) {
    const double c = width(), f = static_cast<double>(m_.mlp_width), d = static_cast<double>(m_.head_dim);
    const double q = static_cast<double>(m_.heads) * d, kv = static_cast<double>(m_.kv_heads) * d;
    // The products q, k and v share one input. Backward computes the dx of v first and adds those of k and of q to it.
    linear("q", r, c, q, m_.attention_bias, 0, one_pass());
    linear("k", r, c, kv, m_.attention_bias, 0, one_pass());
    linear("v", r, c, kv, m_.attention_bias);
    linear("o", r, q, c, m_.output_bias, residual());
    attention(r - windowed);
    attention(windowed, static_cast<double>(m_.window));
    norms_and_residuals(r);
    if (models::style_of(m_).qk_norm == models::DecoderStyle::QkNorm::head) norm_of_heads(r, q + kv);
    pass(Work::elementwise, "RoPE of q and k", r.forward + r.input, 2 * kHalf * rows_ * (q + kv));
    const Runs dense = r - mixed;
    linear("MLP gate", dense, c, f, m_.mlp_bias, 0, one_pass());
    linear("MLP up", dense, c, f, m_.mlp_bias);
    linear("MLP down", dense, f, c, m_.mlp_bias, residual());
    pass(Work::elementwise, "SwiGLU", dense.forward, 3 * kHalf * rows_ * f);
    pass(Work::elementwise, "SwiGLU, dx", dense.input, 5 * kHalf * rows_ * f);
    accumulate("weight gradients added", dense, 2 * c * (q + kv) + 3 * c * f + 2 * c);
    if (m_.experts) experts(mixed, 2 * c * (q + kv) + 2 * c);
  }

  // Adds the kernels of a norm of each head of queries and keys, which have `width` elements together.
  void norm_of_heads(const Runs& r, double width) {
    pass(Work::elementwise, "norm of q and k", r.forward, 2 * kHalf * rows_ * width);
    pass(Work::elementwise, "norm of q and k, dx", r.input, 3 * kHalf * rows_ * width);
    pass(Work::elementwise, "norm of q and k, dgamma", r.weights, 2 * kHalf * rows_ * width);
  }

  // Adds the kernels of layers with experts that other layers do not have. `others` is the number of their parameters outside of the
  // mixture.
  void experts(const Runs& r, double others) {
    const double c = width(), count = static_cast<double>(m_.experts->count), f = static_cast<double>(m_.experts->width);
    linear("router", r, c, count, false, 0, one_pass());
    for (Kernel& kernel : expert_kernels(m_, rows_, {r.forward, r.input, r.weights}, ceilings_)) kernels_.push_back(std::move(kernel));
    accumulate("weight gradients of mixtures added", r, others + count * c * (3 * f + 1));
  }

  // Adds the kernels of the embedding. Forward looks rows up. Backward clears the table of gradients, then reads and writes a row once for
  // each 1024 positions that have the row's token. The bytes are counted as if all tokens were different.
  void embedding(const Runs& r) {
    const double c = width(), v = static_cast<double>(m_.vocabulary), looked_up = 2 * kHalf * rows_ * c,
                 summed = (kHalf + 2 * kWide) * rows_ * c;
    pass(Work::embedding, "tokens looked up", r.forward, looked_up);
    pass(Work::embedding, "tokens, dw", r.weights, summed + kWide * v * c);
    double parameters = v * c;
    if (m_.family == models::Family::gpt2) {
      const double positions = static_cast<double>(m_.positions), blocks = std::ceil(positions / 32) * std::ceil(c / (128 * 8));
      pass(Work::embedding, "positions looked up and added", r.forward, looked_up + 3 * kHalf * rows_ * c);
      pass(Work::embedding, "positions, dw", r.weights, summed + kWide * positions * c, in_flight(blocks, 128, 8 * kAligned),
           in_flight_text(blocks, 128, 8 * kAligned));
      if (m_.embedding_dropout > 0) pass(Work::embedding, "dropout", r.forward + r.weights, looked_up);
      parameters += positions * c;
    }
    accumulate("embedding gradients added", r, parameters);
  }

  // Adds the kernels of ops::linear_cross_entropy. This op computes the fp32 logits in pieces, each with some columns
  // of all rows, and computes them again in each part of a backward unless the plan keeps them. The gradient of the
  // logits is stored in half precision at the start of each fp32 row of logits. All rows are aligned to 64 elements.
  void head(const Runs& r) {
    const double c = width(), v = static_cast<double>(m_.vocabulary);
    const kernels::LogitsCut cut = kernels::logits_cut(static_cast<i64>(rows_), m_.vocabulary, DType::f32, ops::LogitsMemory().piece_bytes);
    const double columns = std::min(v, static_cast<double>(cut.columns)), pieces = v / columns;
    const bool whole = cut.columns >= m_.vocabulary;
    norm("final norm", Work::head, r, false);
    add(product(Work::head, "logits", rows_, columns, c, kWide), pieces * r.forward);
    pass(Work::head, "cross-entropy", pieces * r.forward, kWide * rows_ * columns);
    Kernel logits = product(Work::head, "logits, again", rows_, columns, c, kWide);
    logits.model_flops = 0;
    add(std::move(logits), pieces * r.logits);
    // If the plan keeps the logits, their gradient is computed once, and the second part of a backward in two parts reuses it.
    const double made = r.logits > 0 ? r.backward : std::max(r.input, r.weights);
    pass(Work::head, "cross-entropy, dlogits", pieces * made, (kWide + kHalf) * rows_ * columns);
    Kernel dx = product(Work::head, "logits, dx", rows_, c, columns, whole ? kHalf : kWide);
    if (!whole) dx.bytes += kWide * rows_ * c * (pieces - 1) / pieces;  // every piece except the first reads dx and adds to it
    add(std::move(dx), pieces * r.input);
    if (!whole) pass(Work::head, "dx, rounded", r.input, (kWide + kHalf) * rows_ * c);
    add(product(Work::head, "logits, dw", columns, c, rows_, kWide), pieces * r.weights);
    accumulate("head's gradients added", r, v * c + c);
  }

  // The functions from here on add the work outside of the blocks.

  void instruction(const Instruction& i) {
    const double elems = static_cast<double>(i.tiles.count() * parallel::kTileElems);
    switch (i.op) {
      case Op::Reduce:
        return sum_up(Work::optimizer, "squares of gradients", elems * static_cast<double>(size_of(plan_.resting_gradient({i.group, 0}))));
      case Op::AddTied:
      case Op::Accumulate:
        return sum_up(Work::embedding, "uses of tied weights added", 3 * kWide * elems);
      case Op::Step:
        if (plan_.steps_on_gpu(i.group, i.in.bytes > 0)) return sum_up(Work::optimizer, update_name(), update_bytes(i));
        return updated_elsewhere(i);
      default:
        return moved(i);
    }
  }

  // Adds an optimizer update on the CPU, or one whose tiles stream through the GPU.
  void updated_elsewhere(const Instruction& i) {
    const bool streams = plan_.streams_step(i.group, i.in.bytes > 0);
    const parallel::Plan::LinkBytes link = plan_.step_link_bytes(i);
    if (streams) sum_up(Work::optimizer, update_name(), update_bytes(i));
    from_gpu(streams ? "updated tiles, from the GPU" : "for the CPU's Steps, from the GPU", static_cast<double>(link.from_gpu));
    to_gpu(streams ? "tiles to update, to the GPU" : "from the CPU's Steps, to the GPU", static_cast<double>(link.to_gpu));
  }

  // Adds one run of the kernel or copy `name`, which moves `bytes` bytes. All runs
  // of the same name share one entry of the list, which has their mean bytes.
  void sum_up(Work work, const std::string& name, double bytes, bool to_gpu = false) {
    if (bytes == 0) return;
    const auto at = std::ranges::find_if(kernels_, [&](const Kernel& k) { return k.name == name; });
    if (at == kernels_.end()) return add({.work = work, .name = name, .bytes = bytes, .to_gpu = to_gpu}, 1);
    at->bytes = (at->bytes * at->times + bytes) / (at->times + 1);
    at->times += 1;
  }
  void to_gpu(const std::string& name, double bytes) { sum_up(Work::link, name, bytes, true); }
  void from_gpu(const std::string& name, double bytes) { sum_up(Work::link, name, bytes); }

  std::string update_name() const {
    const optim::Rule rule = plan_.scheduling.format.rule;
    return rule == optim::Rule::adamw ? "AdamW" : to_string(rule);
  }
  double update_bytes(const Instruction& i) const {
    const optim::StateFormat f = plan_.scheduling.format_of(plan_.layout.groups[i.group]);
    const i64 gradient = parallel::kTileElems * size_of(plan_.resting_gradient({i.group, 0}));
    return static_cast<double>(i.tiles.count() *
                               (gradient + (f.update_reads_weight() ? 2 : 1) * f.weight_tile_bytes() + 2 * f.state_tile_bytes()));
  }

  void moved(const Instruction& i) {
    const auto off_device = [](const std::array<i64, offload::kTiers>& bytes) { return static_cast<double>(bytes[1] + bytes[2]); };
    const std::string what = i.what == parallel::What::gradient ? "gradients" : std::string(to_string(i.what));
    if (i.op == Op::Fetch) to_gpu(what + " fetched", off_device(i.read_bytes));
    if (i.op == Op::Evict) from_gpu(what + " evicted", off_device(i.written_bytes));
  }

  const Plan& plan_;
  const ModelConfig& m_;
  const Ceilings& ceilings_;
  const double rows_;
  std::vector<Kernel> kernels_;
};

bool is_in_the_table(const ModelConfig& m) {
  using models::Family;
  constexpr Family kLikeLlama[] = {Family::llama, Family::mistral, Family::mixtral, Family::qwen2, Family::qwen3, Family::qwen3_moe};
  return m.family == Family::gpt2 || std::ranges::find(kLikeLlama, m.family) != std::end(kLikeLlama);
}

}  // namespace

std::vector<Kernel> kernels_of_step(const Plan& plan, const ModelConfig& model, const Ceilings& ceilings) {
  const bool frozen = std::ranges::any_of(plan.layout.groups, [](const parallel::Group& g) { return g.frozen; });
  const bool text = !model.reads_images(), halves = size_of(plan.scheduling.format.weight) == 2;
  if (plan.on_gpu() && plan.training && text && halves && !frozen && is_in_the_table(model)) return Table(plan, model, ceilings).all();
  if (text && !is_in_the_table(model)) {
    throw Error(ErrorCode::usage,
                "[--roofline] expected GPT-2, Llama, Mistral, Mixtral or Qwen, because the table of kernels covers only these; for other "
                "models `plan` predicts times without --roofline");
  }
  throw Error(ErrorCode::usage,
              "[--roofline] expected a plan for training text on a GPU in bf16 or fp16 with nothing frozen: --cluster "
              "\"1x1xH100-80GiB,1TiB\" describes a GPU that is not here");
}

}  // namespace spillway::app
