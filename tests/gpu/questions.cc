// SPDX-License-Identifier: Apache-2.0
//
// Examines behaviour of a driver that its documentation does not define, and on which Xylem relies
// or could rely:
//
//   gpu_questions calls      Which calls of the driver wait for a stream that waits by a memory
//                            operation?
//   gpu_questions progress   What runs on the device while a stream waits: other streams of the
//                            process, other processes?
//   gpu_questions threads    While a call of one thread waits for such a stream, do calls of other
//                            threads continue?
//   gpu_questions queues     Which streams are blocked by one that waits, since they share its
//                            hardware queue?
//   gpu_questions behind     Does work that is enqueued after such a wait block other streams?
//   gpu_questions room       How many commands can be enqueued on a stream that waits?
//   gpu_questions exporter   A process reads memory of another one by CUDA IPC. What happens when
//                            the other process frees it, exits or is killed?
//
// Each answer is one line of JSON. No wait takes longer than a few seconds. The exit status is 0 if
// all questions were answered, whatever the answers are, and 2 if the driver failed unexpectedly.
#include "device.h"
#include "process/command.h"
#include "streams_that_wait.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// The command that starts this program in another role (main).
std::vector<std::string> role(const std::string& name, const std::string& more) {
  return {"/proc/self/exe", name, more};
}

/// Prints a line to the process that started this one, and waits for a line on standard input.
void say_and_wait(const std::string& line) {
  std::cout << line << std::endl;
  std::string go;
  std::getline(std::cin, go);
}

// ---- memory that another process exports ----

constexpr std::size_t kExported = std::size_t{16} << 20;

std::string to_hex(const CUipcMemHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte) & 0xff);
    text += digits;
  }
  return text;
}

CUipcMemHandle from_hex(const std::string& text) {
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

/// A process that has exported memory. All bytes of the memory are 0x11.
class Exporter {
 public:
  explicit Exporter(const std::string& end) : process_(role("export", end)) {
    if (!process_.wait_for_lines(1, Deadline::after(seconds(20)))) {
      std::fprintf(stderr, "the exporting process does not start: %s\n",
                   process_.wait(Deadline::after(seconds(1))).err.c_str());
      std::exit(2);
    }
    handle_ = from_hex(process_.said().substr(0, process_.said().find('\n')));
  }
  const CUipcMemHandle& handle() const noexcept { return handle_; }
  /// Makes the process end in the way that was passed to the constructor, or kills it.
  void begin_to_end(bool is_killed) {
    if (is_killed) return process_.signal(SIGKILL);
    process_.write("go\n");
  }
  /// Returns true if the process has ended, or ends within `limit`.
  bool has_ended(milliseconds limit) { return process_.wait(Deadline::after(limit)).in_time; }
  bool has_said(const std::string& text) {
    return process_.wait_for_output(text, Deadline::after(seconds(5)));
  }

 private:
  Command process_;
  CUipcMemHandle handle_{};
};

/// The program of the exporting process. `end` is "frees" or "exits", or "waits" if one of its
/// streams waits until the process ends.
int export_memory(std::string_view end) {
  const Device device;
  const CUstream stream = device.make_stream();
  const CUdeviceptr memory = device.allocate(kExported);
  std::uint64_t* const words = device.allocate_words(kExported / sizeof(std::uint64_t));
  std::memset(words, 0x11, kExported);
  device.must(device.driver().cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(words), kExported,
                                            stream),
              "cuMemcpyAsync");
  device.must(device.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  CUipcMemHandle handle{};
  device.must(device.driver().cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
  std::optional<WaitingStream> waiting;
  if (end == "waits") waiting.emplace(device).begin();
  say_and_wait(to_hex(handle));
  if (waiting) {
    waiting->go_on();
    waiting->end();
  }
  if (end == "frees") {
    const auto begin = Clock::now();
    const CUresult freed = device.blocking().cuMemFree(memory);
    // New memory may get the address of the freed memory.
    const CUdeviceptr again = device.allocate(kExported);
    std::memset(words, 0x22, kExported);
    device.must(device.driver().cuMemcpyAsync(again, reinterpret_cast<CUdeviceptr>(words),
                                              kExported, stream),
                "cuMemcpyAsync");
    device.must(device.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    std::cout << "freed: " << device.name_of(freed) << " after "
              << rounded(microseconds_since(begin)) << std::endl;
    ::pause();  // Waits until the process is killed.
  }
  return 0;
}

/// The memory as another process reads it.
struct Reader {
  const Device& device;
  const CUstream stream;
  const CUdeviceptr source, target;
  std::uint64_t* const words;

  CUresult enqueue(bool by_kernel) const {
    return by_kernel ? device.launch(target, source, kExported, stream)
                     : device.driver().cuMemcpyAsync(target, source, kExported, stream);
  }
  /// Reads for a given time. Returns the first error, or CUDA_SUCCESS.
  CUresult read(bool by_kernel, milliseconds how_long) const {
    const auto end = Clock::now() + how_long;
    while (Clock::now() < end) {
      for (int i = 0; i < 4; ++i) {
        if (const CUresult result = enqueue(by_kernel); result != CUDA_SUCCESS) return result;
      }
      const CUresult result = wait_for(device, stream, seconds(2));
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }
  /// Describes the bytes that were read last.
  std::string contents() const {
    const CUresult result = device.driver().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(words),
                                                          target, kExported, stream);
    if (result != CUDA_SUCCESS) return "the context is lost (" + device.name_of(result) + ")";
    if (const CUresult waited = wait_for(device, stream, seconds(2)); waited != CUDA_SUCCESS) {
      return "the context is lost (" + device.name_of(waited) + ")";
    }
    const auto* const bytes = reinterpret_cast<const unsigned char*>(words);
    const auto has = [&](int value) { return std::count(bytes, bytes + kExported, value); };
    const auto all = static_cast<std::ptrdiff_t>(kExported);
    if (has(0x11) == all) return "the bytes are still those of the exporter";
    if (has(0x22) == all) return "the bytes are those of the exporter's next allocation";
    if (has(0) == all) return "the bytes are zero";
    return "the bytes are others";
  }
};

void ask_about_one_end(Device& device, const std::string& end, bool is_killed, bool by_kernel) {
  const std::string subject = std::string("read by a ") + (by_kernel ? "kernel" : "copy") +
                              "; the exporter " + (is_killed ? "is killed" : end);
  const auto say = [&](const std::string& text) { answer("exporter", subject, text); };
  Exporter exporter(end);
  CUdeviceptr source = 0;
  const Driver& driver = device.driver();
  const CUresult opened =
      driver.cuIpcOpenMemHandle(&source, exporter.handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened != CUDA_SUCCESS) return say("cuIpcOpenMemHandle: " + device.name_of(opened));
  const Reader reader{device, device.make_stream(), source, device.allocate(kExported),
                      device.allocate_words(kExported / sizeof(std::uint64_t))};
  CUresult result = reader.read(by_kernel, milliseconds(50));
  if (result != CUDA_SUCCESS) return say("cannot be read at all: " + device.name_of(result));
  exporter.begin_to_end(is_killed);
  result = reader.read(by_kernel, milliseconds(500));
  std::string text = "meanwhile: " + device.name_of(result);
  if (end == "frees" && !is_killed) {
    text += exporter.has_said("freed") ? "; the free returned" : "; the free did NOT return";
  } else {
    text += exporter.has_ended(seconds(5)) ? "; it ended" : "; it did NOT end while we read";
  }
  if (result == CUDA_SUCCESS) {
    result = reader.read(by_kernel, milliseconds(100));
    text += "; afterwards: " + device.name_of(result);
  }
  text += "; " + reader.contents();
  text += "; cuIpcCloseMemHandle: " + device.name_of(device.blocking().cuIpcCloseMemHandle(source));
  CUdeviceptr again = 0;
  const CUresult reopened =
      driver.cuIpcOpenMemHandle(&again, exporter.handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  text += "; opened again: " + device.name_of(reopened);
  if (reopened == CUDA_SUCCESS) device.blocking().cuIpcCloseMemHandle(again);
  say(text);
}

/// Runs one case. It is the program of a separate process, since an error may make the context
/// unusable.
int read_memory(const std::string& which) {
  Device device;
  device.load_kernel();
  const bool is_killed = which.find("killed") != std::string::npos;
  const bool frees = which.find("frees") != std::string::npos;
  ask_about_one_end(device, frees ? "frees" : "exits", is_killed,
                    which.find("kernel") != std::string::npos);
  return 0;
}

int ask_about_exporters() {
  int status = 0;
  for (const std::string how : {"copy", "kernel"}) {
    for (const std::string end : {"frees", "exits", "killed"}) {
      Command process(role("read", how + " " + end));
      const Finished finished = process.wait(Deadline::after(seconds(30)));
      std::cout << finished.out << std::flush;
      if (finished.in_time && finished.exit_status == 0) continue;
      status = 2;
      answer("exporter", how + ", " + end,
             finished.in_time ? "the reading process failed: " + finished.err
                              : "the reading process HANGS");
    }
  }
  return status;
}

// ---- calls while a stream waits ----

/// Calls that Xylem or an application may make while a stream waits. They use objects that were
/// created before.
std::vector<DriverCall> calls_to_watch(Device& device, Exporter& exporter) {
  const Driver& driver = device.driver();
  const auto must = [&device](CUresult result, const char* name) { device.must(result, name); };
  struct Objects {
    CUdeviceptr memory = 0, to_free = 0, exported = 0, opened = 0;
    void *pinned = nullptr, *made_pinned = nullptr;
    CUstream idle = nullptr, other = nullptr;
    CUevent event = nullptr;
    std::vector<std::byte> pageable = std::vector<std::byte>(1 << 20), to_register = pageable;
  };
  const auto own = std::make_shared<Objects>();
  own->memory = device.allocate(1 << 20);
  own->to_free = device.allocate(1 << 20);
  own->exported = device.allocate(4 << 20);
  own->pinned = device.allocate_words(1 << 10);
  own->idle = device.make_stream();
  own->other = device.make_urgent_stream();
  must(driver.cuEventCreate(&own->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return {
      {"cuMemAlloc", [=, &device] { device.allocate(64 << 20); }},
      {"cuMemHostAlloc",
       [=, &driver] {
         must(driver.cuMemHostAlloc(&own->made_pinned, 1 << 20, 0), "cuMemHostAlloc");
       }},
      {"cuMemHostRegister",
       [=, &driver] {
         must(driver.cuMemHostRegister(own->to_register.data(), 1 << 20,
                                       CU_MEMHOSTREGISTER_PORTABLE),
              "cuMemHostRegister");
       }},
      {"cuStreamCreateWithPriority", [=, &device] { device.make_stream(); }},
      {"cuEventCreate",
       [=, &driver] {
         CUevent event = nullptr;
         must(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
       }},
      {"cuIpcGetMemHandle",
       [=, &driver] {
         CUipcMemHandle handle;
         must(driver.cuIpcGetMemHandle(&handle, own->exported), "cuIpcGetMemHandle");
       }},
      {"cuIpcOpenMemHandle",
       [=, &driver, &exporter] {
         must(driver.cuIpcOpenMemHandle(&own->opened, exporter.handle(),
                                        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              "cuIpcOpenMemHandle");
       }},
      {"cuIpcCloseMemHandle",
       [=, &device] {
         must(device.blocking().cuIpcCloseMemHandle(own->opened), "cuIpcCloseMemHandle");
       }},
      {"cuMemcpyAsync and cuStreamSynchronize of another stream",
       [=, &driver] {
         must(driver.cuMemcpyAsync(own->memory, own->exported, 1 << 20, own->other),
              "cuMemcpyAsync");
         must(driver.cuStreamSynchronize(own->other), "cuStreamSynchronize");
       }},
      {"cuMemcpyAsync from pageable memory, on another stream",
       [=, &driver] {
         must(driver.cuMemcpyAsync(own->memory, reinterpret_cast<CUdeviceptr>(own->pageable.data()),
                                   1 << 20, own->other),
              "cuMemcpyAsync");
         must(driver.cuStreamSynchronize(own->other), "cuStreamSynchronize");
       }},
      {"cuLibraryLoadData and cuKernelGetFunction", [&device] { device.load_kernel(); }},
      {"the first launch of a kernel, on another stream",
       [=, &device, &driver] {
         must(device.launch(own->memory, own->exported, 1 << 20, own->other), "cuLaunchKernel");
         must(driver.cuStreamSynchronize(own->other), "cuStreamSynchronize");
       }},
      {"cuEventRecord and cuStreamWaitEvent of other streams",
       [=, &driver] {
         must(driver.cuEventRecord(own->event, own->other), "cuEventRecord");
         must(driver.cuStreamWaitEvent(own->idle, own->event, 0), "cuStreamWaitEvent");
         must(driver.cuStreamSynchronize(own->idle), "cuStreamSynchronize");
       }},
      {"cuStreamDestroy of another stream",
       [=, &driver] { must(driver.cuStreamDestroy(own->idle), "cuStreamDestroy"); }},
      {"cuMemAllocManaged",
       [=, &driver] {
         CUdeviceptr memory = 0;
         must(driver.cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL),
              "cuMemAllocManaged");
       }},
      {"cuMemFreeHost",
       [=, &device] { must(device.blocking().cuMemFreeHost(own->pinned), "cuMemFreeHost"); }},
      {"cuMemFree", [=, &device] { must(device.blocking().cuMemFree(own->to_free), "cuMemFree"); }},
  };
}

/// In this test, a stream of the exporting process waits, and no stream of this process waits.
int ask_about_a_waiting_exporter(const Device& device) {
  const Driver& driver = device.driver();
  const CUstream stream = device.make_stream();
  const CUdeviceptr target = device.allocate(kExported);
  Exporter exporter("waits");
  const auto opened = std::make_shared<CUdeviceptr>(0);
  const std::vector<DriverCall> calls = {
      {"cuIpcOpenMemHandle",
       [&device, &driver, &exporter, opened] {
         device.must(driver.cuIpcOpenMemHandle(opened.get(), exporter.handle(),
                                               CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                     "cuIpcOpenMemHandle");
       }},
      {"cuMemcpyAsync from there, and cuStreamSynchronize",
       [&device, &driver, opened, target, stream] {
         device.must(driver.cuMemcpyAsync(target, *opened, kExported, stream), "cuMemcpyAsync");
         device.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
       }},
      {"cuIpcCloseMemHandle",
       [&device, opened] {
         device.must(device.blocking().cuIpcCloseMemHandle(*opened), "cuIpcCloseMemHandle");
       }},
  };
  for (const DriverCall& call : calls) {
    const Watched watched = watch(device, call.make, [&] { exporter.begin_to_end(false); });
    answer("calls", call.name + ", while a stream of the exporter waits", to_string(watched));
    // After this, the exporter's stream does not wait, so the other calls cannot be tested.
    if (watched.end != Watched::End::at_once) std::_Exit(0);
  }
  return 0;
}

int ask_about_calls() {
  Device device;
  Exporter exporter("exits");
  WaitingStream waiting(device);
  for (const DriverCall& call : calls_to_watch(device, exporter)) {
    waiting.begin();
    const bool is_waiting = waiting.is_waiting();
    const Watched watched = watch(device, call.make, [&] { waiting.go_on(); });
    waiting.go_on();
    answer("calls", call.name, is_waiting ? to_string(watched) : "the stream did not wait");
    // Further calls could wait for the call that does not return.
    if (watched.end == Watched::End::never) std::_Exit(0);
    waiting.end();
  }
  exporter.begin_to_end(false);
  return ask_about_a_waiting_exporter(device);
}

// ---- progress while a stream waits ----

/// A process that works when it is requested to. If `when` is "ready", it creates its context
/// before the request.
int work(std::string_view when) {
  const auto start = [](std::optional<Device>& device) {
    device.emplace();
    device->load_kernel();
    return StreamWork(*device, device->make_stream());
  };
  std::optional<Device> device;
  if (when == "ready") {
    const StreamWork ready = start(device);
    const std::string alone = ready.run();
    say_and_wait("ready");
    std::cout << ready.run() << "; before the stream waited: " << alone << std::flush;
    std::cout << "; its cuMemFree takes " << ready.free() << std::endl;
  } else {
    say_and_wait("ready");
    std::cout << start(device).run() << std::endl;
  }
  return 0;
}

void ask_about_a_process(WaitingStream& waiting, const std::string& when) {
  Command other(role("work", when));
  const std::string subject =
      std::string("another process, which started ") + (when == "ready" ? "before" : "meanwhile");
  if (!other.wait_for_output("ready\n", Deadline::after(seconds(20)))) {
    return answer("progress", subject, "it does not start");
  }
  waiting.begin();
  const bool is_waiting = waiting.is_waiting();
  other.write("go\n");
  Finished finished = other.wait(Deadline::after(seconds(6)));
  waiting.go_on();
  std::string text = finished.out.substr(std::min(finished.out.size(), sizeof "ready\n" - 1));
  while (text.ends_with('\n')) text.pop_back();
  if (!finished.in_time) text += "; does NOT end within 6 s";
  if (finished.in_time && finished.exit_status != 0) text = "failed: " + finished.err;
  answer("progress", subject, is_waiting ? text : "the stream did not wait");
  waiting.end();
}

int ask_about_progress() {
  Device device;
  device.load_kernel();
  WaitingStream waiting(device);
  const auto ask_about_stream = [&](const std::string& subject, CUstream stream) {
    const StreamWork other(device, stream);
    const std::string alone = other.run();
    waiting.begin();
    const bool is_waiting = waiting.is_waiting();
    const std::string text = other.run() + "; before the stream waited: " + alone;
    answer("progress", subject, is_waiting ? text : "the stream did not wait");
    waiting.go_on();
    waiting.end();
    other.end();
  };
  ask_about_stream("a stream of the same process and priority", device.make_stream());
  ask_about_stream("a stream of the same process and high priority", device.make_urgent_stream());
  constexpr int kMany = 40;
  std::vector<CUstream> many;
  for (int i = 0; i < kMany; ++i) many.push_back(device.make_stream());
  ask_about_stream("the last of 40 more streams of the same priority", many.back());
  ask_about_a_process(waiting, "ready");
  ask_about_a_process(waiting, "starts");
  return 0;
}

/// What the driver says that the device can do, as far as a design could use it.
int ask_about_attributes() {
  const Device device;
  constexpr std::pair<std::string_view, CUdevice_attribute> kAttributes[] = {
      {"cuStreamBatchMemOp can flush writes of other devices",
       CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
      {"kernels access registered host memory at the host's address",
       CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
      {"GPUDirect RDMA", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
      {"order of writes by GPUDirect RDMA", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING},
      {"ways to flush writes by GPUDirect RDMA",
       CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS},
      {"dma-buf", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
      {"multicast objects (NVLS)", CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED},
      {"fabric handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
      {"MPS", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
  };
  for (const auto& [name, attribute] : kAttributes) {
    int value = 0;
    const CUresult result = device.driver().cuDeviceGetAttribute(&value, attribute, 0);
    answer("attributes", std::string(name),
           result == CUDA_SUCCESS ? std::to_string(value) : "the driver does not know it");
  }
  return 0;
}

int run(std::string_view what, const std::string& more) {
  if (what == "attributes") return ask_about_attributes();
  if (what == "calls") return ask_about_calls();
  if (what == "progress") return ask_about_progress();
  if (what == "threads") return ask_about_threads();
  if (what == "behind") return ask_about_work_behind();
  if (what == "queues") return ask_about_queues();
  if (what == "room") return ask_about_room();
  if (what == "exporter") return ask_about_exporters();
  if (what == "export") return export_memory(more);
  if (what == "read") return read_memory(more);
  if (what == "work") return work(more);
  std::fputs("usage: gpu_questions attributes|calls|progress|threads|queues|behind|room|exporter\n",
             stderr);
  return 2;
}

}  // namespace
}  // namespace xylem::test::gpu

int main(int argc, char** argv) {
  const int status =
      xylem::test::gpu::run(argc > 1 ? argv[1] : "", argc > 2 ? std::string(argv[2]) : "");
  std::cout.flush();
  // Without destructors of objects that a thread or a stream may still use.
  std::_Exit(status);
}
