// What libtorch has and its Rust bindings leave out. Every function catches what libtorch throws and
// tells it through `forest_error`. Only the CPU parts are linked: kernels of other devices are found
// by libtorch's own dispatcher once their library is loaded.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shim.h"

using at::Tensor;

thread_local char* forest_thrown = nullptr;

namespace {

std::vector<Tensor> list(Tensor* const* tensors, int64_t count) {
    std::vector<Tensor> values;
    values.reserve(count);
    for (int64_t i = 0; i < count; ++i) {
        values.push_back(*tensors[i]);
    }
    return values;
}

// Time of the parts of the work: of the wall clock on the processor; elsewhere between two events on
// the stream that the work goes to, which are read later, so that nothing waits for them.
constexpr size_t PARTS = 3;
using Clock = std::chrono::steady_clock;

struct Span {
    int32_t part;
    Clock::time_point begun;
    std::optional<c10::Event> first, last;
};

class Recorder {
   public:
    explicit Recorder(c10::Device on) : device(on) {}

    std::shared_ptr<Span> begin(int32_t part) {
        auto span = std::make_shared<Span>();
        span->part = part;
        if (device.is_cpu()) {
            span->begun = Clock::now();
        } else {
            span->first = record();
        }
        return span;
    }

    // Backward passes of other devices end spans on threads of their own.
    void end(const std::shared_ptr<Span>& span) {
        if (device.is_cpu()) {
            const std::chrono::duration<double> taken = Clock::now() - span->begun;
            std::lock_guard<std::mutex> hold(lock);
            seconds.at(span->part) += taken.count();
            return;
        }
        span->last = record();
        std::lock_guard<std::mutex> hold(lock);
        spans.push_back(span);
    }

    // Seconds of every part since the last call. Waits for the events that are still to come.
    std::array<double, PARTS> take() {
        std::lock_guard<std::mutex> hold(lock);
        for (const auto& span : spans) {
            span->last->synchronize();
            seconds.at(span->part) += span->first->elapsedTime(*span->last) / 1e3;
        }
        spans.clear();
        auto taken = seconds;
        seconds.fill(0.0);
        return taken;
    }

    // Spans of the thread that calls, which end in reverse order.
    std::vector<std::shared_ptr<Span>> open;

   private:
    c10::Event record() const {
        c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
        event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
        return event;
    }

    c10::Device device;
    std::mutex lock;
    std::vector<std::shared_ptr<Span>> spans;
    std::array<double, PARTS> seconds{};
};

using Shared = std::shared_ptr<Recorder>;
using torch::autograd::variable_list;

// A node of the backward pass begins its span here, and ends it in `After`.
struct Before : torch::autograd::FunctionPreHook {
    Before(Shared to, int32_t what, std::shared_ptr<std::shared_ptr<Span>> at)
        : recorder(std::move(to)), part(what), span(std::move(at)) {}
    variable_list operator()(const variable_list& gradients) override {
        *span = recorder->begin(part);
        return gradients;
    }
    Shared recorder;
    int32_t part;
    std::shared_ptr<std::shared_ptr<Span>> span;
};

struct After : torch::autograd::FunctionPostHook {
    After(Shared to, std::shared_ptr<std::shared_ptr<Span>> at)
        : recorder(std::move(to)), span(std::move(at)) {}
    variable_list operator()(const variable_list& outputs, const variable_list&) override {
        if (*span) {
            recorder->end(*span);
            span->reset();
        }
        return outputs;
    }
    Shared recorder;
    std::shared_ptr<std::shared_ptr<Span>> span;
};

}  // namespace

extern "C" {

// The last error of this thread, which the caller frees; null if there is none.
char* forest_error() {
    char* told = forest_thrown;
    forest_thrown = nullptr;
    return told;
}

void forest_free(char* text) { std::free(text); }

// Adds to the gradients of everything that `output` was computed from, given its own gradient.
bool forest_backward(const Tensor* output, const Tensor* gradient) {
    return caught([&] { output->backward(*gradient); });
}

// One AdamW update of all parameters in place.
bool forest_adamw(Tensor* const* parameters, Tensor* const* gradients, Tensor* const* first,
                  Tensor* const* second, Tensor* const* steps, int64_t count, double lr,
                  double beta1, double beta2, double decay, double eps) {
    return caught([&] {
        c10::AutoGradMode no_grad(false);
        auto p = list(parameters, count);
        auto g = list(gradients, count);
        auto m = list(first, count);
        auto v = list(second, count);
        auto s = list(steps, count);
        at::_fused_adamw_(p, g, m, v, {}, s, lr, beta1, beta2, decay, eps, false, false);
    });
}

// Most bytes that tensors took at one time on a CUDA device; -1 if it cannot be told.
int64_t forest_peak_bytes(int8_t device) {
    int64_t peak = -1;
    caught([&] {
        auto* allocator = at::getDeviceAllocator(at::kCUDA);
        peak = allocator->getDeviceStats(device).allocated_bytes[0].peak;
    });
    return peak;
}

// Whether operations take kernels that give the same result every time; those that have none throw.
bool forest_deterministic(bool only) {
    return caught([&] { at::globalContext().setDeterministicAlgorithms(only, false); });
}

// Name of a CUDA device as its driver gives it, cut to `size` bytes with the final zero.
bool forest_device_name(int32_t index, char* name, int32_t size) {
    // Libtorch's own query of devices is in its CUDA library, which is not linked; the driver is
    // loaded once that library is.
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) {
        return false;
    }
    auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
    auto tell = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
    int device = 0;
    bool told = get && tell && get(&device, index) == 0 && tell(name, size, device) == 0;
    dlclose(driver);
    return told;
}

// A recorder for the processor, or for the CUDA device of this index when it is not negative.
Shared* forest_recorder(int8_t index) {
    Shared* recorder = nullptr;
    caught([&] {
        auto device = index < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, index);
        recorder = new Shared(std::make_shared<Recorder>(device));
    });
    return recorder;
}

void forest_recorder_free(Shared* recorder) { delete recorder; }

// Opens a span of a part of the work on this thread.
bool forest_span_begin(Shared* recorder, int32_t part) {
    return caught([&] { (*recorder)->open.push_back((*recorder)->begin(part)); });
}

// Closes the span that was opened last.
bool forest_span_end(Shared* recorder) {
    return caught([&] {
        auto& open = (*recorder)->open;
        if (!open.empty()) {
            (*recorder)->end(open.back());
            open.pop_back();
        }
    });
}

// Has the backward pass of the operation that gave `output` recorded too.
bool forest_watch(Shared* recorder, const Tensor* output, int32_t part) {
    return caught([&] {
        if (auto node = output->grad_fn()) {
            auto span = std::make_shared<std::shared_ptr<Span>>();
            node->add_pre_hook(std::make_unique<Before>(*recorder, part, span));
            node->add_post_hook(std::make_unique<After>(*recorder, span));
        }
    });
}

// Seconds of every part since the last call.
bool forest_seconds(Shared* recorder, double* seconds) {
    return caught([&] {
        auto taken = (*recorder)->take();
        std::copy(taken.begin(), taken.end(), seconds);
    });
}
}
