using System;
using System.Collections.Generic;
using System.Threading;

namespace Oxpipe
{
    /// <summary>One ONNX graph. Any thread, any number of calls at once; runs take turns.</summary>
    public sealed unsafe class Session : IDisposable
    {
        private readonly SessionHandle handle = new SessionHandle();

        private delegate int GetPort(oxp_session* session, ulong index, oxp_port_info* info, oxp_error** error);

        private Session()
        {
        }

        /// <summary>Opens the model in a file; external data lies beside it.</summary>
        public static Session Open(
            string path,
            SessionOptions options = null,
            Runtime runtime = null,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            var session = new Session();
            using (var cancel = new CancelScope(cancellationToken))
            using (var runtimeLease = new Lease(runtime?.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            using (var text = new Utf8Text(path ?? throw new ArgumentNullException(nameof(path))))
            {
                oxp_session* made;
                oxp_error* error;
                int status = NativeMethods.oxp_session_open(
                    (oxp_runtime*)runtimeLease.Pointer, text.Bytes, text.Length, (oxp_options*)optionsLease.Pointer, &made,
                    cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
                session.handle.Own(made);
            }
            return session;
        }

        /// <summary>Opens a model in memory, which is copied, with the files that its tensors name as external data.</summary>
        public static Session OpenMemory(
            ReadOnlyMemory<byte> model,
            IReadOnlyCollection<KeyValuePair<string, ReadOnlyMemory<byte>>> external = null,
            SessionOptions options = null,
            Runtime runtime = null,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            var session = new Session();
            using (var cancel = new CancelScope(cancellationToken))
            using (var runtimeLease = new Lease(runtime?.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            using (var pins = new Pins())
            {
                oxp_file* files = Files.Pin(pins, external);
                oxp_session* made;
                oxp_error* error;
                int status = NativeMethods.oxp_session_open_memory(
                    (oxp_runtime*)runtimeLease.Pointer, pins.Memory(model.Pin()), (ulong)model.Length, files,
                    (ulong)(external == null ? 0 : external.Count), (oxp_options*)optionsLease.Pointer, &made, cancel.Pointer,
                    &error);
                Calls.Check(status, error, cancellationToken);
                session.handle.Own(made);
            }
            return session;
        }

        /// <summary>The inputs, in the graph's order.</summary>
        public IReadOnlyList<PortInfo> Inputs
        {
            get
            {
                using (var lease = new Lease(handle))
                {
                    ulong count;
                    oxp_error* error;
                    var session = (oxp_session*)lease.Pointer;
                    Calls.Check(NativeMethods.oxp_session_get_input_count(session, &count, &error), error);
                    return Ports(session, count, NativeMethods.oxp_session_get_input);
                }
            }
        }

        /// <summary>The outputs, in the graph's order.</summary>
        public IReadOnlyList<PortInfo> Outputs
        {
            get
            {
                using (var lease = new Lease(handle))
                {
                    ulong count;
                    oxp_error* error;
                    var session = (oxp_session*)lease.Pointer;
                    Calls.Check(NativeMethods.oxp_session_get_output_count(session, &count, &error), error);
                    return Ports(session, count, NativeMethods.oxp_session_get_output);
                }
            }
        }

        /// <summary>The model's metadata_props, then its producer and so on.</summary>
        public IReadOnlyList<KeyValuePair<string, string>> Metadata
        {
            get
            {
                using (var lease = new Lease(handle))
                {
                    ulong count;
                    oxp_error* error;
                    var session = (oxp_session*)lease.Pointer;
                    Calls.Check(NativeMethods.oxp_session_get_metadata_count(session, &count, &error), error);
                    var entries = new KeyValuePair<string, string>[checked((int)count)];
                    for (int index = 0; index < entries.Length; index++)
                    {
                        byte* key;
                        byte* value;
                        ulong keyLength;
                        ulong valueLength;
                        int status = NativeMethods.oxp_session_get_metadata(
                            session, (ulong)index, &key, &keyLength, &value, &valueLength, &error);
                        Calls.Check(status, error);
                        entries[index] = new KeyValuePair<string, string>(
                            Calls.Text(key, keyLength), Calls.Text(value, valueLength));
                    }
                    return entries;
                }
            }
        }

        /// <summary>Who runs the graph.</summary>
        public Backend Backend
        {
            get
            {
                string reason;
                return GetBackend(out reason);
            }
        }

        /// <summary>Who runs the graph, and why.</summary>
        public Backend GetBackend(out string reason)
        {
            using (var lease = new Lease(handle))
            {
                uint backend;
                byte* text;
                ulong length;
                oxp_error* error;
                int status = NativeMethods.oxp_session_get_backend(
                    (oxp_session*)lease.Pointer, &backend, &text, &length, &error);
                Calls.Check(status, error);
                reason = Calls.Text(text, length);
                return (Backend)backend;
            }
        }

        /// <summary>Times that the graph was run, by whatever call.</summary>
        public long RunCount
        {
            get
            {
                using (var lease = new Lease(handle))
                {
                    var stats = new oxp_session_stats { struct_size = (uint)sizeof(oxp_session_stats) };
                    oxp_error* error;
                    Calls.Check(NativeMethods.oxp_session_get_stats((oxp_session*)lease.Pointer, &stats, &error), error);
                    return checked((long)stats.runs);
                }
            }
        }

        /// <summary>
        /// Runs the graph into memory of the library, for the named outputs, or all of them:
        /// <c>session.Run(new Dictionary&lt;string, Tensor&gt; { ["x"] = Tensor.Create(x, 1, 4) })</c>.
        /// </summary>
        public Outputs Run(
            IReadOnlyCollection<KeyValuePair<string, Tensor>> inputs,
            IReadOnlyList<string> outputNames = null,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            var outputs = new Outputs();
            using (var cancel = new CancelScope(cancellationToken))
            using (var lease = new Lease(handle))
            using (var pins = new Pins())
            {
                int count = outputNames == null ? 0 : outputNames.Count;
                byte** names = null;
                ulong* lengths = null;
                if (count > 0)
                {
                    names = (byte**)pins.Block((long)count * sizeof(byte*));
                    lengths = (ulong*)pins.Block((long)count * sizeof(ulong));
                    for (int index = 0; index < count; index++)
                    {
                        ulong length;
                        names[index] = pins.Text(outputNames[index], out length);
                        lengths[index] = length;
                    }
                }
                oxp_outputs* made;
                oxp_error* error;
                int status = NativeMethods.oxp_session_run_alloc(
                    (oxp_session*)lease.Pointer, pins.Inputs(inputs), (ulong)inputs.Count, names, lengths, (ulong)count, &made,
                    cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
                outputs.Handle.Own(made);
            }
            return outputs;
        }

        /// <summary>
        /// Runs the graph into the caller's memory, for any subset of its outputs. If any is too
        /// small, the call fails with Status.BufferTooSmall and every buffer says what it needs.
        /// </summary>
        public void RunInto(
            IReadOnlyCollection<KeyValuePair<string, Tensor>> inputs,
            IReadOnlyCollection<KeyValuePair<string, OutputBuffer>> outputs,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var lease = new Lease(handle))
            using (var pins = new Pins())
            {
                var named = (oxp_named_out*)pins.Block((long)outputs.Count * sizeof(oxp_named_out));
                int index = 0;
                foreach (KeyValuePair<string, OutputBuffer> output in outputs)
                {
                    ulong length;
                    named[index].name = pins.Text(output.Key, out length);
                    named[index].name_len = length;
                    named[index].tensor = pins.Output(output.Value);
                    index++;
                }
                oxp_error* error;
                int status = NativeMethods.oxp_session_run(
                    (oxp_session*)lease.Pointer, pins.Inputs(inputs), (ulong)inputs.Count, named, (ulong)outputs.Count,
                    cancel.Pointer, &error);
                if (status == NativeMethods.OXP_OK || status == NativeMethods.OXP_ERR_BUFFER_TOO_SMALL)
                {
                    index = 0;
                    foreach (KeyValuePair<string, OutputBuffer> output in outputs)
                    {
                        oxp_tensor_out tensor = named[index].tensor;
                        output.Value.Learn((DataType)tensor.dtype, tensor.byte_len, Pins.Dims(tensor));
                        index++;
                    }
                }
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>How large outputs will be for inputs of these types and shapes, without running.</summary>
        public IReadOnlyList<OutputBound> Bound(
            IReadOnlyCollection<KeyValuePair<string, Tensor>> inputs, IReadOnlyList<string> outputNames)
        {
            using (var lease = new Lease(handle))
            using (var pins = new Pins())
            {
                var named = (oxp_named_out*)pins.Block((long)outputNames.Count * sizeof(oxp_named_out));
                for (int index = 0; index < outputNames.Count; index++)
                {
                    ulong length;
                    named[index].name = pins.Text(outputNames[index], out length);
                    named[index].name_len = length;
                    named[index].tensor = pins.Output(null);
                }
                oxp_error* error;
                int status = NativeMethods.oxp_session_output_bound(
                    (oxp_session*)lease.Pointer, pins.Inputs(inputs), (ulong)inputs.Count, named, (ulong)outputNames.Count,
                    &error);
                Calls.Check(status, error);
                var bounds = new OutputBound[outputNames.Count];
                for (int index = 0; index < bounds.Length; index++)
                {
                    bounds[index] = new OutputBound(outputNames[index], named[index].tensor);
                }
                return bounds;
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }

        private static IReadOnlyList<PortInfo> Ports(oxp_session* session, ulong count, GetPort get)
        {
            var ports = new PortInfo[checked((int)count)];
            for (int index = 0; index < ports.Length; index++)
            {
                var info = new oxp_port_info { struct_size = (uint)sizeof(oxp_port_info) };
                oxp_error* error;
                Calls.Check(get(session, (ulong)index, &info, &error), error);
                ports[index] = new PortInfo(info);
            }
            return ports;
        }
    }

    /// <summary>How large an output will be.</summary>
    public sealed class OutputBound
    {
        internal OutputBound(string name, oxp_tensor_out tensor)
        {
            Name = name;
            DataType = (DataType)tensor.dtype;
            if (tensor.byte_len != NativeMethods.OXP_UNKNOWN_SIZE)
            {
                ByteLength = checked((long)tensor.byte_len);
                Shape = Pins.Dims(tensor);
            }
        }

        public string Name { get; }

        public DataType DataType { get; }

        /// <summary>Bytes; null where only a run can tell.</summary>
        public long? ByteLength { get; }

        /// <summary>Dims; null where only a run can tell.</summary>
        public long[] Shape { get; }
    }

    internal static unsafe class Files
    {
        internal static oxp_file* Pin(Pins pins, IReadOnlyCollection<KeyValuePair<string, ReadOnlyMemory<byte>>> files)
        {
            if (files == null)
            {
                return null;
            }
            var pinned = (oxp_file*)pins.Block((long)files.Count * sizeof(oxp_file));
            int index = 0;
            foreach (KeyValuePair<string, ReadOnlyMemory<byte>> file in files)
            {
                ulong length;
                pinned[index].name = pins.Text(file.Key, out length);
                pinned[index].name_len = length;
                // An empty file has no bytes to point to.
                pinned[index].data = file.Value.IsEmpty ? pins.Block(1) : pins.Memory(file.Value.Pin());
                pinned[index].byte_len = (ulong)file.Value.Length;
                index++;
            }
            return pinned;
        }
    }
}
