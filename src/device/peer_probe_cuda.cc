#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "device/peer_probe.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{1} << 20;

// A message of the child process to its parent. For each pair of GPUs, one message says that the copy begins, and another how the copy
// ended.
struct Told {
  enum class What { gpus, begins, no_access, reached, lost, failed, links_end } what;
  int from, to;  // a pair of GPUs; in a message of kind `gpus`, `from` is the number of GPUs
};

// The code that the child process runs. It frees nothing on exit, because the system reclaims everything.
class Prober {
 public:
  explicit Prober(int pipe) : pipe_(pipe) {}

  void run() const {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess) return;
    for (int gpu = 0; gpu < gpus && gpus > 1; ++gpu) static_cast<void>(cudaSetDevice(gpu) == cudaSuccess && cudaFree(nullptr));
    tell({Told::What::gpus, gpus, 0});
    if (gpus > 1) probe_all(gpus, true);
    tell({Told::What::links_end, 0, 0});
    if (gpus > 1) probe_all(gpus, false);
  }

 private:
  // Probes either the linked pairs of GPUs or all others. Linked pairs come first, so that a hang between other GPUs does not hide their
  // result.
  void probe_all(int gpus, bool links) const {
    for (int from = 0; from < gpus; ++from) {
      for (int to = 0; to < gpus; ++to) {
        if (from != to && linked(from, to) == links) tell({probe(from, to), from, to});
      }
    }
  }
  static bool linked(int from, int to) {
    int atomics = 0;
    return cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) == cudaSuccess && atomics != 0;
  }
  void tell(const Told& told) const { static_cast<void>(!::write(pipe_, &told, sizeof told)); }

  Told::What probe(int from, int to) const {
    int allowed = 0;
    if (cudaDeviceCanAccessPeer(&allowed, from, to) != cudaSuccess) return Told::What::failed;
    if (!allowed) return Told::What::no_access;
    std::vector<unsigned char> sent(kBytes), got(kBytes);
    for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<unsigned char>((i * 7 + static_cast<size_t>(from) * 16 + 1) % 251 + 1);
    void *source = nullptr, *target = nullptr;
    // a braced list evaluates its elements, the calls, from left to right
    const auto all_well = [](std::initializer_list<cudaError_t> calls) {
      return std::ranges::all_of(calls, [](cudaError_t status) { return status == cudaSuccess; });
    };
    if (!all_well({cudaSetDevice(to), cudaMalloc(&target, kBytes), cudaMemcpy(target, got.data(), kBytes, cudaMemcpyHostToDevice),
                   cudaStreamSynchronize(nullptr)}))
      return Told::What::failed;
    if (!all_well({cudaSetDevice(from), cudaMalloc(&source, kBytes), cudaMemcpy(source, sent.data(), kBytes, cudaMemcpyHostToDevice),
                   cudaStreamSynchronize(nullptr)}))
      return Told::What::failed;
    cudaStream_t stream = nullptr;
    if (!all_well({cudaDeviceEnablePeerAccess(to, 0), cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)}))
      return Told::What::failed;
    tell({Told::What::begins, from, to});
    if (!all_well({cudaMemcpyPeerAsync(target, to, source, from, kBytes, stream), cudaStreamSynchronize(stream)}))
      return Told::What::failed;
    if (!all_well({cudaSetDevice(to), cudaMemcpy(got.data(), target, kBytes, cudaMemcpyDeviceToHost)})) return Told::What::failed;
    static_cast<void>(cudaFree(target));
    static_cast<void>(cudaSetDevice(from));
    static_cast<void>(cudaFree(source));
    return got == sent ? Told::What::reached : Told::What::lost;
  }

  const int pipe_;
};

// Receives one message from the child process. Returns false if no message arrives within
// `timeout_s`, or if the child process has ended; in the latter case `gone` is set.
bool hear(int pipe, double timeout_s, Told& told, bool& gone) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  auto* to = reinterpret_cast<char*>(&told);
  for (size_t have = 0; have < sizeof told;) {
    const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left_ms <= 0) return false;
    pollfd ready{pipe, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left_ms)) <= 0) continue;
    const ssize_t got = ::read(pipe, to + have, sizeof told - have);
    gone = got <= 0;
    if (gone) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

// Kills the child process. The process may take long to die inside the driver, so the function waits for at most 10 s.
void end(pid_t prober) {
  static_cast<void>(::kill(prober, SIGKILL));
  for (int turn = 0; turn < 1000 && ::waitpid(prober, nullptr, WNOHANG) == 0; ++turn)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

PeerReport report_of(int pipe, double timeout_s, double start_s) {
  PeerReport report;
  Told told{};
  bool gone = false, copying = false;
  const auto between = [&] { return fmt::format("from cuda:{} to cuda:{}", told.from, told.to); };
  while (hear(pipe, report.gpus == 0 ? start_s : timeout_s, told, gone)) {
    copying = told.what == Told::What::begins;
    if (told.what == Told::What::gpus) report.gpus = told.from;
    if (told.what == Told::What::reached) ++report.reached;
    if (told.what == Told::What::links_end) report.links_work = report.reached > 0 && report.problem.empty();
    if (told.what == Told::What::lost && report.problem.empty()) report.problem = "copies lose data " + between();
  }
  if (!gone && copying) report.problem = "copies hang " + between();
  if (!gone && report.gpus == 0) report.problem = fmt::format("NVIDIA's driver does not answer within {:.0f} s", start_s);
  return report;
}

}  // namespace

PeerReport probe_peers(double timeout_s, double start_s) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t prober = ::fork();
  if (prober == 0) {
    ::close(ends[0]);
    Prober(ends[1]).run();
    static_cast<void>(::raise(SIGKILL));  // skips the exit handlers inherited from the parent process
  }
  ::close(ends[1]);
  PeerReport report;
  if (prober > 0) {
    report = report_of(ends[0], timeout_s, start_s);
    end(prober);
  }
  ::close(ends[0]);
  return report;
}

}  // namespace spillway
