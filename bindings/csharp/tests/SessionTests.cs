using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using Oxpipe;

/// <summary>Sessions on the models of tests/capi/models.rs.</summary>
static class SessionTests
{
    private static string models;
    private static SessionOptions options;

    internal static void Run(string folder, string backend)
    {
        models = folder;
        using (options = new SessionOptions { ["backend"] = backend })
        {
            Library(backend);
            Affine(backend);
            CallersMemory();
            Memory();
            Errors();
            EveryDataType();
            Conversions();
            Cancel();
        }
    }

    private static Session Open(string name)
    {
        return Session.Open(Path.Combine(models, name), options);
    }

    private static Dictionary<string, Tensor> X(Tensor x)
    {
        return new Dictionary<string, Tensor> { ["x"] = x };
    }

    private static void Library(string backend)
    {
        Check.That(OxpipeLibrary.Version.Split('.').Length == 3, OxpipeLibrary.Version);
        Check.That(OxpipeLibrary.AbiVersion >= 1);
        Check.That(OxpipeLibrary.HasBackend(backend == "ort" ? Backend.Ort : Backend.Native));
        Check.Fails(Status.InvalidArgument, "7", () => OxpipeLibrary.HasBackend((Backend)7));
    }

    // y = x * 2 + 1, total = the sum over the last axis.
    private static void Affine(string backend)
    {
        using (Session session = Open("affine.onnx"))
        {
            Check.Same(session.Inputs.Select(port => port.Name), new[] { "x" });
            Check.Same(session.Outputs.Select(port => port.Name), new[] { "y", "total" });
            PortInfo x = session.Inputs[0];
            Check.Equal(x.DataType, DataType.Float32);
            Check.Equal(x.TypeName, "float32");
            Check.Same(x.Dims, new long[] { -1, 4 });
            Check.Same(x.DimNames, new[] { "n", "" });
            Check.That(x.HasRank && !x.IsOptional);
            Check.That(session.Metadata.Contains(new KeyValuePair<string, string>("made_for", "capi tests")));
            string reason;
            Check.Equal(session.GetBackend(out reason), backend == "ort" ? Backend.Ort : Backend.Native);
            Check.Equal(session.Backend, backend == "ort" ? Backend.Ort : Backend.Native);
            Check.That(reason.Length > 0);

            Dictionary<string, Tensor> inputs = X(Tensor.Create(new float[] { 1, 2, 3, 4, 5, 6, 7, 8 }, 2, 4));
            Check.Same(inputs["x"].Shape.ToArray(), new long[] { 2, 4 });
            using (Outputs outputs = session.Run(inputs))
            {
                Check.Same(outputs.Names, new[] { "y", "total" });
                Check.Same(outputs.ToArray<float>("y"), new float[] { 3, 5, 7, 9, 11, 13, 15, 17 });
                Check.Same(outputs.ShapeOf("y"), new long[] { 2, 4 });
                Check.Same(outputs.ToArray<float>("total"), new float[] { 10, 26 });
                Check.Equal(outputs.Use("y", y => y.Bytes.Length + y.ElementCount), 40);
                Check.Fails(Status.UnknownPort, "nothing", () => outputs.ToArray<float>("nothing"));
                Check.Throws<InvalidOperationException>(() => outputs.ToArray<int>("y"));
            }
            using (Outputs outputs = session.Run(inputs, new[] { "total" }))
            {
                Check.Same(outputs.Names, new[] { "total" });
            }
            Check.Equal(session.RunCount, 2);
        }
        Check.Throws<ArgumentNullException>(() => Session.Open(null));
    }

    private static void CallersMemory()
    {
        using (Session session = Open("affine.onnx"))
        {
            // A part of an array: read where it lies.
            var data = new float[] { 9, 1, 2, 3, 4, 9 };
            Dictionary<string, Tensor> inputs = X(Tensor.Create(new ReadOnlyMemory<float>(data, 1, 4), 1, 4));
            IReadOnlyList<OutputBound> bounds = session.Bound(inputs, new[] { "total", "y" });
            Check.That(bounds[1].Name == "y" && bounds[1].ByteLength == 16 && bounds[1].DataType == DataType.Float32);
            Check.Same(bounds[1].Shape, new long[] { 1, 4 });

            var room = new float[] { -1, -1, -1, -1, -1, -1 };
            var y = OutputBuffer.Create(new Memory<float>(room, 1, 4));
            session.RunInto(inputs, new Dictionary<string, OutputBuffer> { ["y"] = y });
            Check.Same(room, new float[] { -1, 3, 5, 7, 9, -1 });
            Check.Same(y.Shape.ToArray(), new long[] { 1, 4 });
            Check.That(y.DataType == DataType.Float32 && y.ByteLength == 16);

            long before = session.RunCount;
            var small = OutputBuffer.Create(new float[3]);
            var total = OutputBuffer.Create(new float[1]);
            Check.Fails(
                Status.BufferTooSmall, "16",
                () => session.RunInto(inputs, new Dictionary<string, OutputBuffer> { ["total"] = total, ["y"] = small }));
            Check.That(small.ByteLength == 16 && total.ByteLength == 4);
            Check.Equal(session.RunCount, before);
        }
        using (Session session = Open("dynamic.onnx"))
        {
            // The shape of y is the value of x: only a run can tell.
            Dictionary<string, Tensor> inputs = X(Tensor.Create(new long[] { 2, 3 }, 2));
            OutputBound bound = session.Bound(inputs, new[] { "y" })[0];
            Check.That(bound.ByteLength == null && bound.Shape == null);
            using (Outputs outputs = session.Run(inputs))
            {
                Check.Same(outputs.ShapeOf("y"), new long[] { 2, 3 });
                Check.Same(outputs.ToArray<long>("copy"), new long[] { 2, 3 });
            }
        }
    }

    private static void Memory()
    {
        byte[] model = File.ReadAllBytes(Path.Combine(models, "external.onnx"));
        byte[] weights = File.ReadAllBytes(Path.Combine(models, "weights.bin"));
        var files = new Dictionary<string, ReadOnlyMemory<byte>> { ["weights.bin"] = weights, ["nothing"] = new byte[0] };
        using (Session session = Session.OpenMemory(model, files, options))
        {
            Array.Clear(model, 0, model.Length);
            Array.Clear(weights, 0, weights.Length);
            using (Outputs outputs = session.Run(X(Tensor.Create(new float[] { 1, 2 }, 2))))
            {
                Check.Same(outputs.ToArray<float>("y"), new float[] { 11, 22 });
            }
        }
    }

    private static void Errors()
    {
        OxpipeException failure = Check.Fails(Status.Io, "nowhere.onnx", () => Open("nowhere.onnx"));
        Check.That(failure.File.Contains("nowhere.onnx"), failure.File);
        Check.Fails(Status.InvalidModel, "random.onnx", () => Open("random.onnx"));
        Check.Fails(Status.UnknownOption, "bakend", () => new SessionOptions { ["bakend"] = "native" });
        Check.Fails(Status.InvalidOption, "magic", () => options.Set("backend", "magic"));
        // Half of a surrogate pair is no text.
        Check.Throws<ArgumentException>(() => Session.Open("\uD800"));
        using (Session session = Open("affine.onnx"))
        {
            Tensor good = Tensor.Create(new float[4], 1, 4);
            failure = Check.Fails(Status.DataTypeMismatch, "int32", () => session.Run(X(Tensor.Create(new int[4], 1, 4))));
            Check.Equal(failure.Port, "x");
            failure = Check.Fails(Status.ShapeMismatch, "5", () => session.Run(X(Tensor.Create(new float[5], 1, 5))));
            Check.Equal(failure.Port, "x");
            Check.Fails(Status.InvalidTensor, "16", () => session.Run(X(Tensor.Create(new float[4], 2, 4))));
            failure = Check.Fails(Status.MissingInput, "x", () => session.Run(new Dictionary<string, Tensor>()));
            Check.Equal(failure.Port, "x");
            failure = Check.Fails(Status.UnknownPort, "z", () => session.Run(X(good), new[] { "z" }));
            Check.Equal(failure.Port, "z");
            Check.Throws<NotSupportedException>(() => Tensor.Create(new double[4], 1, 4));
            // It works as before.
            session.Run(X(good)).Dispose();
            session.Dispose();
            Check.Throws<ObjectDisposedException>(() => session.Run(X(good)));
        }
    }

    private static void EveryDataType()
    {
        Identity(new float[] { 1.5f, -2, float.NaN }, DataType.Float32);
        Identity(new byte[] { 0, 200, 255 }, DataType.UInt8);
        Identity(new sbyte[] { 0, -128, 127 }, DataType.Int8);
        Identity(new ushort[] { 0, 1, 65535 }, DataType.UInt16);
        Identity(new short[] { 0, -32768, 32767 }, DataType.Int16);
        Identity(new[] { 0, int.MinValue, int.MaxValue }, DataType.Int32);
        Identity(new[] { 0, long.MinValue, long.MaxValue }, DataType.Int64);
        Identity(new[] { true, false, true }, DataType.Bool);
        Identity(new[] { new Float16(0x3C00), new Float16(0x7E01), new Float16(1) }, DataType.Float16);
        Identity(new uint[] { 0, 1, uint.MaxValue }, DataType.UInt32);
        Identity(new ulong[] { 0, 1, ulong.MaxValue }, DataType.UInt64);
        Identity(new[] { new BFloat16(0x3F80), new BFloat16(0x7FC1), new BFloat16(1) }, DataType.BFloat16);
        Identity(new[] { new Float8E4M3FN(0x38), new Float8E4M3FN(1) }, DataType.Float8E4M3FN);
        Identity(new[] { new Float8E5M2(0x3C), new Float8E5M2(1) }, DataType.Float8E5M2);

        using (Session session = Open("identity_10_1.onnx"))
        using (Outputs outputs = session.Run(X(Tensor.Create(DataType.Float16, new ushort[] { 0x3C00 }, 1))))
        {
            Check.Equal(outputs.ToArray<Float16>("y")[0], new Float16(0x3C00));
        }
        using (Session session = Open("identity_1_0.onnx"))
        using (Outputs outputs = session.Run(X(Tensor.Create(new[] { 2.5f }))))
        {
            Check.Equal(outputs.ShapeOf("y").Length, 0);
            Check.Equal(outputs.ToArray<float>("y")[0], 2.5f);
        }
        using (Session session = Open("identity_6_2.onnx"))
        using (Outputs outputs = session.Run(X(Tensor.Create(new int[0], 0, 3))))
        {
            Check.Same(outputs.ShapeOf("y"), new long[] { 0, 3 });
            Check.Equal(outputs.ToArray<int>("y").Length, 0);
        }
    }

    /// <summary>The same bytes go in and come out, in the library's memory and in the caller's.</summary>
    private static void Identity<T>(T[] values, DataType type) where T : struct
    {
        Check.Equal(DataTypes.Of<T>(), type);
        byte[] bytes = MemoryMarshal.AsBytes<T>(values).ToArray();
        Check.Equal(DataTypes.SizeOf(type) * values.Length, bytes.Length);
        Check.Equal(DataTypes.NameOf(type), type.ToString().ToLowerInvariant());
        using (Session session = Open("identity_" + (int)type + "_1.onnx"))
        {
            Dictionary<string, Tensor> inputs = X(Tensor.Create(values, values.Length));
            using (Outputs outputs = session.Run(inputs))
            {
                Check.Same(outputs.Use("y", y => y.Bytes.ToArray()), bytes);
                Check.Same(MemoryMarshal.AsBytes<T>(outputs.ToArray<T>("y")).ToArray(), bytes);
                Check.Equal(outputs.Use("y", y => y.DataType), type);
            }
            var room = new T[values.Length];
            session.RunInto(inputs, new Dictionary<string, OutputBuffer> { ["y"] = OutputBuffer.Create(room) });
            Check.Same(MemoryMarshal.AsBytes<T>(room).ToArray(), bytes);
        }
    }

    // By IEEE 754: 1 is 0x3C00, the largest finite 65504 is 0x7BFF, the smallest 2^-24 is 1.
    private static void Conversions()
    {
        foreach ((float value, int bits) in new[]
        {
            (0f, 0), (1f, 0x3C00), (-2f, 0xC000), (65504f, 0x7BFF), (65519f, 0x7BFF), (65520f, 0x7C00), (5.9604645e-8f, 1),
            (2.9802322e-8f, 0), (6.1035156e-5f, 0x400), (6.097555e-5f, 0x3FF), (float.NegativeInfinity, 0xFC00),
            // Halfway between 1 and its successor, and between that and the next: to even.
            (1.00048828125f, 0x3C00), (1.00146484375f, 0x3C02),
        })
        {
            Check.Equal(((Float16)value).Bits, (ushort)bits);
        }
        Check.That(float.IsNaN((float)(Float16)float.NaN) && float.IsNaN((float)(BFloat16)float.NaN));
        foreach ((int bits, float value) in new[]
        {
            (0x3C00, 1f), (0xC000, -2f), (0x7BFF, 65504f), (1, 5.9604645e-8f), (0x3FF, 6.097555e-5f), (0x7C00, float.PositiveInfinity),
        })
        {
            Check.Equal((float)new Float16((ushort)bits), value);
        }
        Check.Equal(((BFloat16)1f).Bits, (ushort)0x3F80);
        Check.Equal((float)new BFloat16(0xC000), -2f);
        // Halfway: 1 + 2^-8 goes to 1, 1 + 3 * 2^-8 to 1 + 2^-6.
        Check.Equal(((BFloat16)1.00390625f).Bits, (ushort)0x3F80);
        Check.Equal(((BFloat16)1.01171875f).Bits, (ushort)0x3F82);
        // Every finite number comes back.
        for (int bits = 0; bits < 0x7C00; bits++)
        {
            if (((Float16)(float)new Float16((ushort)bits)).Bits != bits)
            {
                Check.That(false, "float16 " + bits);
            }
        }
    }

    // slow.onnx squares a matrix 400 times: about a minute for this size if nothing stops it.
    private static void Cancel()
    {
        const int size = 1024;
        using (Session session = Open("slow.onnx"))
        using (var source = new CancellationTokenSource())
        {
            Dictionary<string, Tensor> inputs = X(Tensor.Create(new float[size * size], size, size));
            source.CancelAfter(100);
            var stopped = Check.Throws<OperationCanceledException>(() => session.Run(inputs, null, source.Token));
            Check.Equal(stopped.CancellationToken, source.Token);
            Check.Throws<OperationCanceledException>(() => session.Run(inputs, null, source.Token));
            Check.Throws<OperationCanceledException>(
                () => Session.Open(Path.Combine(models, "affine.onnx"), options, null, source.Token));
            // The session is as good as new.
            using (Outputs outputs = session.Run(X(Tensor.Create(new float[] { 1 }, 1, 1))))
            {
                Check.Equal(outputs.ToArray<float>("y")[0], 1);
            }
        }
    }
}
