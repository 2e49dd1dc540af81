// What libtorch has and its Rust bindings leave out. Every function catches what libtorch throws and
// tells it through `forest_error`. Only the CPU parts are linked: kernels of other devices are found
// by libtorch's own dispatcher once their library is loaded.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_adamw.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <tuple>
#include <vector>

using at::Tensor;

namespace {

thread_local char* error = nullptr;

template <typename Work>
bool caught(Work work) {
    try {
        work();
        return true;
    } catch (const std::exception& e) {
        std::free(error);
        error = strdup(e.what());
        return false;
    }
}

std::vector<Tensor> list(Tensor* const* tensors, int64_t count) {
    std::vector<Tensor> values;
    values.reserve(count);
    for (int64_t i = 0; i < count; ++i) {
        values.push_back(*tensors[i]);
    }
    return values;
}

}  // namespace

extern "C" {

// The last error of this thread, which the caller frees; null if there is none.
char* forest_error() {
    char* told = error;
    error = nullptr;
    return told;
}

void forest_free(char* text) { std::free(text); }

// Causal attention of packed sequences, [tokens][heads][dim], by libtorch's flash kernels. Sequence i
// takes rows ends[i] .. ends[i + 1]; autograd covers query, key and value.
Tensor* forest_flash_attention(const Tensor* query, const Tensor* key, const Tensor* value,
                               const Tensor* ends, int64_t longest) {
    Tensor* out = nullptr;
    caught([&] {
        auto all = at::_flash_attention_forward(*query, *key, *value, *ends, *ends, longest, longest,
                                                0.0, true, false);
        out = new Tensor(std::get<0>(all));
    });
    return out;
}

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
}
